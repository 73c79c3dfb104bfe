"""The policy file is strict, the owner's alone, and its digest covers effective values."""

from __future__ import annotations

import os

import pydantic
import pytest

from bridge.errors import UsageError
from bridge.runner.policy.allow_lists import host_paths
from bridge.runner.policy.check import problems
from bridge.runner.policy.file import builtin_policy, load_policy, read_policy
from bridge.runner.policy.model import Policy

GOOD = b'schema = 1\nname = "mini"\n'


@pytest.fixture
def file(tmp_path):
    folder = tmp_path / "config"
    folder.mkdir(mode=0o700)
    path = folder / "policy.toml"
    path.write_bytes(GOOD)
    path.chmod(0o600)
    return path


def test_the_owners_file_is_read(file):
    assert load_policy(file).name == "mini"


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf" + GOOD, GOOD.replace(b"\n", b"\r\n")], ids=["mark", "crlf"])
def test_a_file_as_an_editor_of_another_system_leaves_it_is_read(file, data):
    file.write_bytes(data)
    assert load_policy(file).name == "mini"
    assert [check for check in problems(file) if check.level == "fail"] == []


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
def test_a_file_others_may_touch_is_refused(file, mode):
    file.chmod(mode)
    with pytest.raises(UsageError, match=f"{mode:04o}"):
        load_policy(file)


def test_a_folder_in_which_others_may_replace_it_is_refused(file):
    file.parent.chmod(0o777)
    with pytest.raises(UsageError, match="replace"):
        load_policy(file)


def test_a_link_and_an_absent_file_are_refused(file, tmp_path):
    link = file.parent / "link.toml"
    link.symlink_to(file)
    with pytest.raises(UsageError, match="regular"):
        load_policy(link)
    with pytest.raises(UsageError, match="no such file"):
        load_policy(tmp_path / "none.toml")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_owner_is_refused(file):
    os.chown(file, 12345, 12345)
    with pytest.raises(UsageError, match="12345"):
        load_policy(file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'schema = 1\nname = "mini"\nembedded = true\n', "embedded"),
        (b'schema = 1\nname = "mini"\ntrust_pusher = true\n', "trust_pusher"),
        (b'schema = 1\nname = "mini"\ntrust_pushers = 1\n', "trust_pushers"),
        (b'schema = 1\nname = "mini"\nname = "two"\n', "overwrite|twice|more than once"),
        (b'schema = 2\nname = "mini"\n', "schema"),
        (b'name = "mini"\n', "schema"),
        (b'schema = 1\nname = "Mini Mac"\n', "name"),
        (b'schema = 1\nname = "mini"\ninterpreter = "python3"\n', "interpreter"),
        (b'schema = 1\nname = "mini"\nexpiry_max_s = 1e9\n', "expiry_max_s"),
        (b'schema = 1\nname = "mini"\nonly_when = ["full_moon"]\n', "only_when"),
        (b'schema = 1\nname = "mini"\n[env]\nKAKEYA_RUN_ID = "x"\n', "the runner sets"),
        (b'schema = 1\nname = "mini"\n[env]\n"BASH-ENV" = "x"\n', "env"),
        (b'schema = 1\nname = "mini"\napproval = ["ask"]\n', "absolute"),
        (b'schema = 1\nname = "mini"\ntrust_pushers = true\n[sandbox]\nmode = "off"\n', "sandbox"),
        (b'schema = 1\nname = "mini"\n[sandbox]\nuid = 0\n', "uid"),
        (b"\xff", "policy.toml"),
    ],
)
def test_anything_else_is_refused_with_the_place(text, says):
    with pytest.raises(UsageError, match=says):
        read_policy(text)


def test_the_digest_covers_effective_values_and_no_secret():
    plain = read_policy(GOOD).digest(embedded=False)
    assert read_policy(GOOD + b"# a comment\nslots = 1\n").digest(embedded=False) == plain
    assert read_policy(GOOD + b"slots = 2\n").digest(embedded=False) != plain
    assert read_policy(GOOD).digest(embedded=True) != plain
    first, second = (read_policy(GOOD + b'[secrets]\nTOKEN = "%s"\n' % value) for value in (b"1", b"2"))
    assert first.digest(embedded=False) == second.digest(embedded=False) != plain


def test_the_built_in_policy_takes_only_named_things_from_its_owner(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    policy = builtin_policy(
        {
            "KAKEYA_TARGET": "/m/big",
            "KAKEYA_MODEL_ROOTS": "/m:relative",
            "OMP_NUM_THREADS": "2",
            "KAKEYA_ENDPOINT": "unix:/run/drafter",
            "BASH_ENV": "/evil",
            "PYTHONPATH": "/evil",
        }
    )
    facts = policy.facts(embedded=True)
    assert (facts.target, facts.model_roots) == ("/m/big", ("/m",))
    assert dict(facts.environment) == {"OMP_NUM_THREADS": "2"}
    assert facts.endpoints == ("unix:/run/drafter",)
    assert facts.trust_pushers
    (tmp_path / "kakeya-models").mkdir()
    assert builtin_policy({}).model_roots == (str(tmp_path / "kakeya-models"),)


@pytest.mark.parametrize("way", [b'socket = "/run/kakeya-run.sock"\n', b"own_users = true\n"])
def test_what_gives_runs_users_of_their_own_excludes_naming_one(way):
    own = b"[sandbox]\n" + way
    facts = read_policy(GOOD + own).facts(embedded=False)
    assert (facts.apart, facts.sandbox_uid) == (True, None)
    assert not read_policy(GOOD).facts(embedded=False).apart
    with pytest.raises(UsageError, match=r"sandbox\.uid and sandbox\.(socket|own_users) each say which user"):
        read_policy(GOOD + own + b"uid = 501\n")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('[executor]\npartition = "gpu"', 'partition of \\[executor\\] need engine = "slurm"'),
        ('[executor]\nengine = "slurm"\nconstraints = {cuda = "a100"}', "cuda is none of labels"),
        ('[executor]\nengine = "slurm"\n[sandbox]\nuid = 501', "leave out sandbox.uid"),
        ('[executor]\nengine = "slurm"\npartition = "x --uid=0"', "executor.partition"),
        ('[executor]\nengine = "k3s"', "executor.engine"),
        (
            '[executor]\nengine = "slurm"\n[executor.jobs.cuda]\npartition = "a"',
            "executor.jobs: cuda is none of labels",
        ),
        ('[executor]\nengine = "ray"\n[executor.jobs.cuda]\ncpus = 1', 'jobs of \\[executor\\] need engine = "slurm"'),
        ('[executor]\nengine = "slurm"\nsbatch = ["--uid=0"]', "--uid is the runner's own"),
        ('[executor]\nengine = "slurm"\nsbatch = ["--expor=ALL"]', "--expor is the runner's own"),
        ('[executor]\nengine = "slurm"\nsbatch = ["--comment=a b"]', "executor.sbatch"),
        ('[executor]\nengine = "slurm"\nmodules = ["x; rm"]', "executor.modules"),
        ("[executor]\ncpus = 2", 'cpus of \\[executor\\] need engine = "slurm" or "ray"'),
        ('[executor]\nengine = "ray"\npartition = "gpu"', 'partition of \\[executor\\] need engine = "slurm"'),
        ('[executor]\nengine = "slurm"\ngpus = 1', 'gpus of \\[executor\\] need engine = "ray"'),
        ('[executor]\nengine = "ray"\nmemory = "lots"', "memory of \\[executor\\] is a number with K, M, G, T"),
        ('[executor]\nengine = "ray"\naddress = "ray://x"', "address of \\[executor\\]: expected an http"),
        (
            '[executor]\nengine = "ray"\naddress = "http://x:8265"\ntoken_file = "/t"',
            "address of \\[executor\\]: whoever is between here and x could read the token",
        ),
    ],
)
def test_what_an_engine_cannot_have_is_refused_with_the_place(lines, says):
    with pytest.raises(UsageError, match=says):
        read_policy(f'schema = 1\nname = "mini"\n{lines}\n'.encode())


def test_one_machine_has_sixteen_slots_at_most_and_a_cluster_more():
    with pytest.raises(UsageError, match="one machine has at most 16"):
        read_policy(b'schema = 1\nname = "mini"\nslots = 17\n')
    policy = read_policy(b'schema = 1\nname = "mini"\nslots = 200\nlabels = ["cuda"]\n'
                         b'[executor]\nengine = "slurm"\nconstraints = {cuda = "a100"}\n')  # fmt: skip
    assert policy.facts(embedded=False).nodes == {"cuda": "a100"}
    policy = read_policy(b'schema = 1\nname = "mini"\nlabels = ["cuda", "big"]\n[executor]\nengine = "slurm"\n'
                         b'constraints = {cuda = "a100"}\n[executor.jobs.big]\npartition = "h100"\n')  # fmt: skip
    assert policy.facts(embedded=False).nodes == {"cuda": "a100", "big": "big"}


def files_in(model: type[pydantic.BaseModel], under: str = "") -> list[str]:
    """Return the keys of a policy that name a file of secrets: each is called so."""
    keys = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
            keys += files_in(kind, f"{under}{name}.")
        elif name.endswith("_file"):
            keys.append(f"{under}{name}")
    return keys


def test_every_file_of_secrets_that_a_policy_names_is_hidden_from_runs(tmp_path):
    keys = files_in(Policy)
    assert {"executor.token_file", "hosting.token_file", "actions.token_file", "lfs.password_file"} <= set(keys)
    for key in keys:
        section, _, name = key.rpartition(".")
        policy = builtin_policy({})
        changed = getattr(policy, section).model_copy(update={name: "/etc/kakeya/secret"})
        policy = policy.model_copy(update={section: changed})
        assert "/etc/kakeya/secret" in host_paths(policy, tmp_path).private, key


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAKEYA_ENDPOINT", "127.0.0.1:50551"),
        ("KAKEYA_ENDPOINT", "unix:relative"),
        ("KAKEYA_TARGET", "a\nb"),
        ("KAKEYA_DRAFTER", "a\nb"),
    ],
)
def test_a_variable_that_no_policy_may_hold_is_named_with_what_helps(name, value):
    with pytest.raises(UsageError, match=f"^{name}=") as refused:
        builtin_policy({name: value})
    assert refused.value.remedy.startswith("unset")
