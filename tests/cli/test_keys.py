from pathlib import Path


def test_keys_writes_a_directory_per_node_and_says_what_to_do_with_it(geotrain, tmp_path: Path):
    answer = geotrain("keys", tmp_path / "keys", "--nodes", "east-0, south-0", "--job", "gpt-a")
    lines = answer.out.splitlines()
    assert [line.split("  valid until ")[0].rstrip() for line in lines[:2]] == [
        f"made    {tmp_path / 'keys' / 'east-0'}",
        f"made    {tmp_path / 'keys' / 'south-0'}",
    ]
    assert lines[2:] == ["", f"next: copy each directory to its node; keep {tmp_path / 'keys' / 'ca'} at home"]
    assert sorted(path.name for path in (tmp_path / "keys" / "east-0").iterdir()) == [
        "ca.pem",
        "certificate.pem",
        "key.pem",
    ]


def test_json_names_the_directories(geotrain, tmp_path: Path):
    answer = geotrain("keys", tmp_path, "--nodes", "a", "--json").json
    assert answer.keys() == {"job", "authority", "nodes"}
    assert answer["nodes"][0].keys() == {"node", "directory", "action", "valid_until"}
    assert geotrain("keys", tmp_path, "--nodes", "a", "--json").json["nodes"][0]["action"] == "kept"


def test_bad_input_is_one_sentence(geotrain, tmp_path: Path):
    answer = geotrain("keys", tmp_path, "--nodes", "East")
    assert (answer.exit_code, answer.err.count("\n")) == (2, 1)
    assert answer.err.startswith("error: nodes: 'East' must be 1 to 40 lowercase letters")
    answer = geotrain("keys", tmp_path, "--nodes", "a", "--job", "")
    assert (answer.exit_code, answer.err) == (2, "error: job: '' must be 1 to 40 bytes of printable text\n")
    answer = geotrain("keys", "/dev/null/keys", "--nodes", "a")
    assert (answer.exit_code, answer.err.count("\n")) == (2, 1)
    assert "cannot be written" in answer.err
