"""The tools over a bus in memory, with a clock that is moved: what they say, how long they take, what they leave."""

from __future__ import annotations

import io
import json

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from bridge.cli.mac.agents.in_process import InProcess
from bridge.cli.mac.agents.tools import TOOL_OF, tools_of
from bridge.cli.mac.context import Invocation
from bridge.cli.screen.output import Output
from bridge.cli.table import parser
from bridge.cli.table.commands import AGENT_WAIT_MAX_S, MAC
from bridge.client.document.envelope import of_data
from bridge.client.send.parameters import listed, split, untyped
from bridge.client.send.sweep import combinations
from bridge.errors import UsageError
from bridge.mcp.answers import ANSWER_MAX_BYTES, answer, fitted, remedy_with_tools
from bridge.mcp.server import make_server
from bridge.presets.installed import registry
from bridge.presets.workloads.folder import read_folder
from tests.fakes.memory_bus import MemoryBus, bus_record
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost
from tests.fakes.tool_client import connected
from tests.support.workload_folder import INTERPRETER, write_workload
from tests.unit.bridge.cli.looking import take

CLIENT_TIMEOUT_S = 60.0


class HostedBus(MemoryBus):
    """A bus that is looked at every few seconds, as one at a hosting site is."""

    hosted = True


@pytest.fixture
def requester(tmp_path):
    requester = Requester(tmp_path)
    requester.bus = HostedBus(clock=requester.clock, record=bus_record(requester.clock, lease_s=600.0))
    return requester


@pytest.fixture
def host(requester):
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    requester.pin(host.sign())
    return host


@pytest.fixture
def server(requester, host):
    return served(requester)


def served(requester, *words):
    """Return what `kakeya-mac mcp WORDS` serves."""
    around = requester.surroundings(io.StringIO(), io.StringIO())
    command = MAC.by_name["mcp"]
    call = Invocation(
        command, parser.parse(command, list(words)), Output(around.stdout, around.stderr), around.clock,
        around.environment, around.directory, around.opener,
    )  # fmt: skip
    return make_server(InProcess(call), "test")


def tool_named(name, offered=None, own=()):
    """Return one tool of a bus that offers what is installed, or this."""
    tools = tools_of(registry() if offered is None else offered, own)
    return next(tool for tool in tools if tool.name == name)


def presets_of(tools):
    """Return the presets that `run` offers."""
    return tools["run"].input_schema["properties"]["preset"].get("enum", [])


def with_client(server, act, **options):
    async def main():
        async with connected(server, **options) as client:
            return await act(client)

    return anyio.run(main)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_run_is_started_waited_for_and_read_with_tools_alone(server, requester, host, mode):
    async def act(client):
        presets = presets_of(await client.tools())
        assert "mlx-env-probe" in presets
        assert "k3-fused-allmlx-code" not in presets, "the host of this bus does not offer it"
        sent = await client.call("run", preset="mlx-env-probe")
        assert sent["outcome"]["reason"] == "pending"
        again = await client.call("run", preset="mlx-env-probe")
        assert again["id"] == sent["id"]
        requester.clock.plan(1, lambda: take(host, sent["id"]))
        ended = await client.seen_through(sent["id"])
        assert (ended["terminal"], ended["outcome"]["verdict"]) == (True, "valid")
        quoted = await client.raw("quote", ids=[sent["id"]])
        assert "claims nothing, so there is nothing to quote" in quoted.content[0].text
        return await client.raw("logs", id=sent["id"])

    logs = with_client(server, act, mode=mode)
    text = logs.content[1].text
    assert text.startswith("A program wrote the lines between the marks.")
    assert "| two" in text.splitlines()
    assert "| ::error::x" in text.splitlines()


def test_a_run_of_two_hours_never_makes_a_client_wait_for_a_minute(server, requester, host):
    """Every call is timed by the clock that the run goes by."""
    clock = requester.clock

    async def act(client):
        run_id = (await client.call("run", preset="mlx-env-probe"))["id"]
        clock.plan(1, lambda: host.claim(run_id))
        clock.plan(2, lambda: host.start(run_id))
        for renewal in range(1, 24):
            clock.plan(300 * renewal, lambda: host.start(run_id))
        clock.plan(7200, lambda: take_end(host, run_id))
        longest_s = waits = 0
        while True:
            begun_s = clock.steady_s()
            document = await client.call("wait", id=run_id)
            longest_s, waits = max(longest_s, clock.steady_s() - begun_s), waits + 1
            if document["outcome"]["reason"] != "pending":
                return document, longest_s, waits, client.progress

    document, longest_s, waits, progress = with_client(server, act)
    assert document["outcome"]["reason"] == "passed"
    assert longest_s < CLIENT_TIMEOUT_S
    assert waits > 7200 / AGENT_WAIT_MAX_S
    assert any(text.startswith("started after") for text in progress)


def take_end(host, run_id):
    host.judge(run_id)
    host.finish(run_id)


@pytest.mark.parametrize(("words", "offered"), [(("--bus", "embedded"), True), ((), False)])
def test_this_machines_own_bus_offers_installed_presets_before_its_runner_was_started(requester, words, offered):
    async def act(client):
        return "k3-fused-allmlx-code" in presets_of(await client.tools())

    assert with_client(served(requester, *words), act) == offered


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("run", {"preset": "mlx-env-probe", "param": {"nonsense": 1}}, "mlx-env-probe takes no parameters"),
        ("run", {"preset": "mlx-env-probe", "lr": 0.2}, 'go below param: {"param": {"lr": 0.2}}'),
        ("run", {"preset": "mlx-env-probe", "profile": "--queue"}, "--queue"),
        ("run", {"preset": "mlx-env-probe", "runner": "--new"}, "--new"),
        ("run", {}, "'preset' is a required property"),
        ("status", {"id": "--help"}, "--help"),
        ("wait", {"id": "@last", "wait_timeout": 3600}, "3600"),
        ("run", {"preset": "mlx-env-probe", "param": {"lr": {}}}, "lr: '{}' is none of array, boolean, number, string"),
        ("run", {"preset": "mlx-env-probe", "param": {"lr": [1]}}, "mlx-env-probe takes no parameters"),
        ("no-such-tool", {}, "no-such-tool"),
        ("run", {"preset": "no-such-preset"}, "'no-such-preset' is not one of"),
    ],
)
def test_arguments_that_do_not_fit_are_said_and_nothing_is_sent(server, requester, name, arguments, message):
    result = with_client(server, lambda client: client.raw(name, **arguments))
    assert result.is_error
    assert message in result.content[0].text
    assert requester.bus.snapshot().requests == ()


def test_a_command_that_cannot_answer_is_an_error_with_its_remedy(server):
    result = with_client(server, lambda client: client.raw("status", id="@last"))
    assert result.is_error
    assert '"message":' in result.content[0].text


@pytest.mark.parametrize(
    ("remedy", "expected"),
    [
        ("kakeya-mac ls", "call `runs`"),
        ("kakeya-mac quote 01k9", "call `quote` with 01k9"),
        ("kakeya-mac compare --help", "the schema of this tool says what it takes"),
        ("kakeya-mac presets show my-train", "call `presets` with my-train"),
        ("give the URL that is meant with --bus URL", "in a shell: give the URL that is meant with --bus URL"),
        ("ask the bus's owner", "ask the bus's owner"),
    ],
)
def test_a_remedy_names_a_tool_or_says_that_it_is_for_a_shell(remedy, expected):
    assert remedy_with_tools(remedy, TOOL_OF) == expected


def test_an_error_sends_a_client_to_a_tool(server):
    result = with_client(server, lambda client: client.raw("status", id="nosuch"))
    assert json.loads(result.content[0].text)["outcome"]["remedy"] == "call `runs`"


def test_a_whole_number_may_come_with_a_point(server):
    """As JSON of several languages writes it."""
    listed = with_client(server, lambda client: client.call("runs", limit=2.0))
    assert listed["outcome"]["exit_code"] == 0
    tool = tool_named("run")
    assert "depth=3" in tool.words(tool.checked({"preset": "k3-fused-allmlx-code", "param": {"depth": 3.0}}))


def test_a_large_number_stays_one_that_a_command_line_takes():
    tool = tool_named("run", {"my-train": None})
    words = tool.words(tool.checked({"preset": "my-train", "param": {"lr": 1e20}}))
    args = parser.parse(MAC.by_name["run"], words[1:])
    assert untyped(split(args.param)) == {"lr": 1e20}


def test_a_resource_holds_what_an_answer_leaves_out(server, requester, host):
    async def act(client):
        run_id = (await client.call("run", preset="mlx-env-probe"))["id"]
        host.claim(run_id)
        host.start(run_id)
        host.log(run_id, b"".join(b"line %d\n" % number for number in range(9000)), final=True)
        host.judge(run_id)
        host.finish(run_id)
        result = await client.raw("logs", id=run_id, lines=1000)
        links = [str(part.uri) for part in result.content if part.type == "resource_link"]
        pages, uri = [], next(link for link in links if link.endswith("/log"))
        while uri:
            page = await client.client.read_resource(uri)
            pages.append(page.contents[0].text)
            uri = (page.meta or {}).get("kakeya/more")
        return pages

    pages = with_client(server, act)
    assert len(pages) > 1
    assert "| line 0" in pages[0].splitlines()
    assert "| line 8999" in pages[-1].splitlines()


def test_pages_after_the_first_are_of_its_moment_although_the_run_went_on(server, requester, host):
    """A log that grew would push lines over the border between two pages: they came twice, or never."""

    async def act(client):
        run_id = (await client.call("run", preset="mlx-env-probe"))["id"]
        host.claim(run_id)
        host.start(run_id)
        host.log(run_id, b"".join(b"line %d\n" % number for number in range(9000)))
        first = await client.client.read_resource(f"kakeya://run/{run_id}/log")
        host.log(run_id, b"".join(b"later %d\n" % number for number in range(9000)))
        second = await client.client.read_resource(first.meta["kakeya/more"])
        renewed = await client.client.read_resource(f"kakeya://run/{run_id}/log")
        unknown = first.meta["kakeya/more"][:-64] + "0" * 64
        with pytest.raises(MCPError, match="is no longer here; read kakeya://run/"):
            await client.client.read_resource(unknown)
        return first, second, renewed

    first, second, renewed = with_client(server, act)
    rows = [line for page in (first, second) for line in page.contents[0].text.splitlines() if line.startswith("| ")]
    assert not any("later" in row for row in rows)
    assert "".join(row.removeprefix("| ") for row in rows).count("line") == 9000
    assert "| line 8999" in rows
    assert renewed.contents[0].text != first.contents[0].text


def test_reports_that_an_answer_leaves_out_are_linked(server, requester, host):
    async def act(client):
        run_id = (await client.call("run", preset="mlx-env-probe"))["id"]
        take(host, run_id, reports={"repeat-0/report.json": {"metrics": {"rows_read": 4711}}})
        result = await client.raw("result", what=run_id)
        (link,) = [str(part.uri) for part in result.content if str(getattr(part, "uri", "")).endswith("/reports")]
        page = await client.client.read_resource(link)
        return run_id, json.loads(result.content[0].text), json.loads(page.contents[0].text)

    run_id, document, reports = with_client(server, act)
    assert document["id"] == run_id
    assert reports == {"repeat-0/report.json": {"metrics": {"rows_read": 4711}}}


def test_tools_say_what_they_change(server):
    tools = with_client(server, lambda client: client.tools())
    reads = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
    ends = {name for name, tool in tools.items() if tool.annotations.destructive_hint}
    assert ends == {"cancel"}
    assert tools.keys() - {"cancel", "run"} == reads


def test_there_are_a_dozen_tools_whatever_is_offered(server):
    tools = with_client(server, lambda client: client.tools())
    assert len(tools) == len(TOOL_OF) <= 12
    every = tools_of(registry(), ())
    assert sum(len(json.dumps([tool.name, tool.description, tool.schema])) for tool in every) < 9_000


def test_an_answer_repeats_nothing_that_the_agent_said_itself(server, requester, host):
    async def act(client):
        sent = await client.call("run", preset="mlx-env-probe")
        status = await client.call("status", id=sent["id"])
        take(host, sent["id"])
        await client.seen_through(sent["id"])
        logs = await client.raw("logs", id=sent["id"])
        return status, json.loads(logs.content[0].text)

    status, logs = with_client(server, act)
    assert status["asked"] == {"preset": "mlx-env-probe", "params": {}, "profile": "smoke"}
    assert status.keys() <= {"id", "state", "terminal", "outcome", "asked", "where"}
    assert logs.keys() <= {"id", "state", "terminal", "headline", "outcome", "claims", "findings"}


def test_two_clients_share_a_run_and_one_ends_it_in_answers_of_half_a_kilobyte(server, requester, host):
    sizes = {}

    async def main():
        async with connected(server) as first, connected(served(requester)) as second:
            listing = await first.client.list_tools()
            sizes["tools/list"] = len(listing.model_dump_json(exclude_none=True))

            async def ask(client, name, **arguments):
                result = await client.raw(name, **arguments)
                assert not result.is_error, result.content[0].text
                sizes[name] = len(result.content[0].text)
                return json.loads(result.content[0].text)

            sent = await ask(first, "run", preset="mlx-env-probe")
            assert (await ask(second, "run", preset="mlx-env-probe"))["id"] == sent["id"]
            host.claim(sent["id"])
            host.start(sent["id"])
            host.log(sent["id"], b"one\n\x1b[2Jtwo\n")
            assert (await ask(second, "status", id=sent["id"]))["state"] == "started"
            assert [row["id"] for row in (await ask(first, "runs"))["data"]] == [sent["id"]]
            logs = await second.raw("logs", id=sent["id"])
            assert "\x1b" not in logs.content[1].text
            assert "| two" in logs.content[1].text.splitlines()
            await ask(second, "cancel", id=sent["id"])
            assert requester.bus.snapshot().cancels == {sent["id"]}
            host.finish(sent["id"], "cancelled", decision="rejected", message="cancelled", program_exit=None)
            for client in (first, second):
                assert (await ask(client, "wait", id=sent["id"]))["outcome"]["reason"] == "cancelled"

    anyio.run(main)
    assert sizes.pop("tools/list") < 7_000
    assert max(sizes.values()) < 500, sizes


def test_the_presets_of_the_bus_come_first_and_are_described(tmp_path):
    own = read_folder(write_workload(tmp_path), INTERPRETER).presets["my-train"]
    tool = tool_named("run", {**registry(), "my-train": own}, ("my-train",))
    assert tool.schema["properties"]["preset"]["enum"][0] == "my-train"
    assert "my-train: Fit a line. At most 2m. Takes lr: 0.01 to 1.0, default 0.1; steps: 1 to 100" in tool.description
    assert "Measures final_loss (median, nats, lower is better, 0 to 100)." in tool.description
    with pytest.raises(UsageError, match=r"param\.lr: 7 is greater than the maximum of 1\.0; my-train takes lr, steps"):
        tool.words(tool.checked({"preset": "my-train", "param": {"lr": 7}}))


def test_a_sweep_is_sent_at_once_and_found_again(server, requester):
    async def act(client):
        sent = await client.call("run", preset="mlx-env-probe", repeat=2)
        again = await client.call("run", preset="mlx-env-probe", repeat=2)
        return sent["data"], again["data"]

    sent, again = with_client(server, act)
    assert len(requester.bus.snapshot().requests) == 2
    assert again == sent


def test_a_sweep_over_texts_is_a_run_a_text_whatever_is_in_them():
    given = {"preset": "my-train", "param": {"note": ["a,b", "c"], "lr": [0.1], "quick": [True, False]}, "repeat": 1}
    tool = tool_named("run", {"my-train": None})
    args = parser.parse(MAC.by_name["run"], tool.words(tool.checked(given))[1:])
    assert len(combinations(None, listed(args.param), args.repeat)) == 4
    assert args.param == ["note=a,b", "note=c", "lr=0.1", "quick=true", "quick=false"]


def test_of_the_longest_sweep_every_run_is_named_and_all_is_linked(server, requester):
    async def act(client):
        sent = await client.call("run", preset="mlx-env-probe", repeat=64)
        compared = await client.raw("compare", a=sent["data"]["sweep"])
        (link,) = [str(part.uri) for part in compared.content if part.type == "resource_link"]
        pages, uri = [], link
        while uri:
            page = await client.client.read_resource(uri)
            pages.append(page.contents[0].text)
            uri = (page.meta or {}).get("kakeya/more")
        return sent["data"]["runs"], json.loads("".join(pages))["data"]["runs"]

    sent, whole = with_client(server, act)
    assert {row["id"] for row in sent} == {ref.id for ref in requester.bus.snapshot().requests}
    assert {row["id"]: row["repeat"] for row in whole} == {row["id"]: row["repeat"] for row in sent}
    assert len(whole) == len(sent) == 64


def test_runs_of_a_sweep_are_named_whatever_their_parameters_take():
    runs = [{"id": f"{at:026}", "params": {"note": "x" * 200}, "repeat": 0, "claims": []} for at in range(64)]
    data = {"sweep": "0" * 26, "preset": "my-notes", "caution": "a first look", "runs": runs, "differences": []}
    (text,), _ = answer(of_data("run", data), TOOL_OF)
    assert [row["id"] for row in json.loads(text)["data"]["runs"]] == [row["id"] for row in runs]


@pytest.mark.parametrize("name", sorted(name for name, preset in registry().items() if preset.status == "ready"))
def test_the_defaults_of_every_preset_fit_and_become_a_command_line(name):
    tool = tool_named("run")
    preset = registry()[name]
    defaults = {key: param.default for key, param in preset.params.items() if param.default is not None}
    needed = {key: "0" * 40 for key, param in preset.params.items() if param.default is None and param.type == "commit"}
    words = tool.words(tool.checked({"preset": name, "param": defaults | needed}))
    assert parser.parse(MAC.by_name["run"], words[1:]).preset == name


def types_of(schema):
    """Yield every value of `type` in a schema."""
    if isinstance(schema, dict):
        yield from [schema["type"]] if "type" in schema else []
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []:
        yield from types_of(inner)


def test_no_schema_names_several_types_at_once_which_some_clients_refuse():
    every_schema = [tool.schema for tool in tools_of(registry(), ())]
    assert {type(json_type) for schema in every_schema for json_type in types_of(schema)} == {str}


def test_every_tool_is_a_command_line_that_parses():
    samples = {"id": "@last", "ids": ["@last"], "a": "@last", "b": "@last", "what": "@last", "preset": "mlx-env-probe"}
    for tool in tools_of(registry(), ()):
        given = tool.checked({key: samples[key] for key in tool.schema["required"]})
        command, *rest = tool.words(given)
        parser.parse(MAC.by_name[command], rest)


def test_whatever_is_answered_fits():
    for value in ("x" * 10**6, ["y" * 50] * 10**4, {f"k{n}": ["z" * 99] * 99 for n in range(99)}, {"a": {"b": [[]]}}):
        text, _ = fitted(value, ANSWER_MAX_BYTES)
        assert len(text) <= ANSWER_MAX_BYTES


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("run", {"preset": ["mlx-env-probe"]}, "run: preset: ['mlx-env-probe'] is not of type 'string'"),
        ("run", {"preset": {"a": 1}}, "run: preset: {'a': 1} is not of type 'string'"),
        ("run", {"preset": "mlx-env-probe\0"}, "does not match"),
        ("run", {"preset": "a" * 1_000_000}, "a… does not match '^[a-z0-9]"),
        ("run", {"preset": "mlx-env-probe", "repeat": "3"}, "run: repeat: '3' is not of type 'integer'"),
        ("status", {"id": "x" * 1_000_000}, "x… does not match '^(@last|"),
        ("logs", {"id": "@last", "lines": float("inf")}, "is not of type 'integer'"),
        ("quote", {"ids": "@last"}, "quote: ids: '@last' is not of type 'array'"),
    ],
)
def test_an_argument_that_does_not_fit_is_answered_with_what_is_expected(server, host, tool, arguments, message):
    result = with_client(server, lambda client: client.raw(tool, **arguments))
    assert (result.is_error, message in result.content[0].text) == (True, True), result.content[0].text[:400]
