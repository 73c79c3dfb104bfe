from tests.support.tiers import left_to_ci


def ids(name: str, *cases: str) -> list[str]:
    return [f"{name}[{case}]" for case in cases]


def test_one_case_of_each_test_stays_and_it_is_the_same_in_every_run():
    tests = [
        *ids("tests/integration/bus/test_a.py::test_it", "file", "http", "ssh"),
        *ids("tests/conformance/bus/test_b.py::TestIn::test_it", "memory", "git"),
    ]
    left = left_to_ci(tests)
    assert len(left) == 3
    assert left == left_to_ci(tests)
    assert {tests[place].partition("[")[0] for place in range(5) if place not in left} == {
        "tests/integration/bus/test_a.py::test_it",
        "tests/conformance/bus/test_b.py::TestIn::test_it",
    }


def test_tests_of_one_file_draw_different_backends():
    names = [f"tests/conformance/engine/test_c.py::test_{number}" for number in range(40)]
    tests = [case for name in names for case in ids(name, "mlx", "torch")]
    left = set(left_to_ci(tests))
    drawn = {tests[place].partition("[")[2] for place in range(len(tests)) if place not in left}
    assert drawn == {"mlx]", "torch]"}


def test_cases_of_other_folders_and_tests_without_cases_stay():
    tests = [*ids("tests/unit/bridge/test_d.py::test_it", "1", "2"), "tests/integration/bus/test_e.py::test_it"]
    assert left_to_ci(tests) == []
