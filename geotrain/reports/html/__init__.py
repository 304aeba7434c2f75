"""What pages are made of: one HTML file each, its look, its sections, and the timeline that scripts draw."""
