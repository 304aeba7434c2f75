from tests.wan.sample import bench, probe, way


def test_what_follows_from_the_steps():
    found = way(10.0, 20.0, 39.0, 40.0)
    assert (found.single, found.cap, found.enough, found.growing, found.busy) == (10.0, 40.0, 4, False, False)


def test_a_path_that_still_grows_says_so_and_so_does_a_busy_machine():
    assert way(10.0, 20.0).growing
    assert not way(10.0).growing
    assert way(10.0, cores=0.95).busy


def test_the_window_is_rate_times_the_middle_round_trip():
    assert probe().window_bytes(probe().there) == 36.625e6 * 0.04


def test_gains_are_against_the_first_row():
    found = bench()
    assert [round(found.gain(row), 9) for row in found.rows[:2]] == [1.0, 10.0]
    assert found.rate(found.rows[1]) == 335_000_000.0
