"""Which request goes into which bubble: predictor, admission, controller. Events in, commands out; no clock, no GPU."""
