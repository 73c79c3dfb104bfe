"""Every bound of the bridge with its unit: the file a security reviewer opens first.

A bound on what strangers may send is never configurable; a bound on what a host spends is a default of its policy.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Request bytes: strangers write them.
REQUEST_MAX_BYTES: Final = 64 * KIB
JSON_MAX_DEPTH: Final = 16
TEXT_MAX_CHARS: Final = 1024
QUOTAS_MAX_COUNT: Final = 32  # names whose share of an hour a sign of life tells
OFFERS_MAX_COUNT: Final = 64  # definitions of a host's own presets in its sign of life
ANSWER_MAX_CHARS: Final = 16 * 1024  # the one line in which a recompute command answers
PARAMS_MAX_COUNT: Final = 64
LABELS_MAX_COUNT: Final = 16
EXPIRY_MAX_S: Final = 24 * 3600
EXPIRY_DEFAULT_S: Final = 2 * 3600
CLOCK_SKEW_MAX_S: Final = 15 * 60  # created in the future by more than this is refused
REQUEST_DEAD_S: Final = EXPIRY_MAX_S + 2 * CLOCK_SKEW_MAX_S  # after this a request pushed again is expired

# Report bytes: the workload writes them.
REPORT_MAX_BYTES: Final = 16 * MIB
REPORT_JSON_MAX_DEPTH: Final = 32
REPORTS_MAX_COUNT: Final = 64
SAMPLE_MARK_MAX_BYTES: Final = 512
SAMPLE_MARKS_MAX_COUNT: Final = 100_000
SAMPLE_MARKS_MAX_BYTES: Final = 8 * MIB  # of them together, which a result holds beside the reports

# One run on a host: defaults, tightened by preset and request, capped by policy.
WALL_DEFAULT_S: Final = 600.0
INACTIVITY_DEFAULT_S: Final = 300.0
GRACE_S: Final = 5.0  # between TERM and KILL
MEMORY_DEFAULT_BYTES: Final = 16 * 1024 * MIB
PROCESSES_DEFAULT_COUNT: Final = 512
TASKS_FLOOR_COUNT: Final = 512  # threads and processes of a run together: this many, or so many a core
TASKS_PER_CORE_COUNT: Final = 32
OPEN_FILES_DEFAULT_COUNT: Final = 4096
OUTPUT_DEFAULT_BYTES: Final = 256 * MIB  # everything a run may leave in its directories
OUTPUT_FILES_DEFAULT_COUNT: Final = 200_000  # files and directories a run may add to its directories
RUN_DISK_FLOOR_BYTES: Final = 64 * MIB  # free space below which a running job is ended
LOG_MAX_BYTES: Final = 4 * MIB
DISK_FLOOR_BYTES: Final = 1024 * MIB  # free space below which nothing is claimed

# Result tree.
RESULT_MAX_BYTES: Final = 32 * MIB
RESULT_MAX_FILES: Final = 256
RESULT_PATH_MAX_CHARS: Final = 255
RESULT_PATH_MAX_PARTS: Final = 8
ATTEMPTS_LISTED_COUNT: Final = 64  # of the earlier runs of a question, the latest; no verdict pools more

# Fetch and checkout of request code.
TREE_MAX_ENTRIES: Final = 20_000
HISTORY_MAX_COMMITS: Final = 10_000  # looked through for the commit a request wants its own to be compared with
TREE_MAX_BYTES: Final = 512 * MIB
CHECKOUT_WALL_S: Final = 60.0
LFS_DEFAULT_BYTES: Final = 512 * MIB  # large files of one tree
LFS_WALL_S: Final = 600.0  # fetching them

# The runner's journal and its own log.
JOURNAL_EVENTS_COUNT: Final = 20_000  # kept of runs that have ended
RUNNER_LOG_MAX_BYTES: Final = 4 * MIB  # one file
RUNNER_LOG_FILES_COUNT: Final = 5
RUNNER_LOG_TEXT_MAX_CHARS: Final = 32 * KIB  # a message, or a traceback

SWEEP_MAX_COUNT: Final = 64  # requests of one sweep

# Bus protocol.
LEASE_MAX_S: Final = 600.0  # what a bus record says unless its maker says otherwise
LEASE_MIN_S: Final = 60.0  # but for a bus whose record allows less
LEASE_PUSHES: Final = 12  # a lease is as long as so many slow pushes to this remote
LEASE_RUN_SHARE: Final = 1 / 6  # or so much of the time that the run has gone on, where that is longer
LEASE_SAMPLE_COUNT: Final = 20  # of the last pushes, whose slowest hundredth is taken
LEASE_MARGIN_SHARE: Final = 1 / 3
LEASE_LISTINGS_COUNT: Final = 3  # good listings, without the claim moving on, before anybody else may act for its run
LISTING_WHOLE_EVERY_S: Final = 3600.0  # between listings of all refs
LISTING_DAYS_EVERY_S: Final = 300.0  # between listings of the last days; all others show the last minutes
LISTING_WHOLE_FIRST_S: Final = 20.0  # and before the first one
LISTING_SMALL_BYTES: Final = 16 * KIB  # of a listing of all refs that is no dearer than one of the last days
LISTING_OPEN_COUNT: Final = 64  # requests that have not ended, up to which each is listed by its name
PUSH_ANSWER_SMALL_BYTES: Final = MIB  # of all refs, with which a remote answers a push, below which nobody is warned
STEP_CLAIM_FETCHES: Final = 4  # fetches of one step of a runner that read claims of others
STEP_REQUEST_FETCHES: Final = 7  # and those that read requests
STEP_SIGNATURES_COUNT: Final = 64  # signatures of requests that one step verifies
UPLINK_SLOW_BYTES_PER_S: Final = 64 * KIB  # a result is given a lease in which it arrives at this pace
BEGIN_AGAIN_S: Final = 3600.0  # after its claim, how long a run that the remote did not let begin is tried again
RESTART_GRACE_S: Final = 600.0  # what a planned stop renews its claims for, when it leaves runs behind
PUSHES_PER_MINUTE_HOSTED: Final = 4.0
BEACON_INTERVAL_HOSTED_S: Final = 120.0
BEACON_INTERVAL_LOCAL_S: Final = 5.0
BEACON_INTERVAL_IDLE_S: Final = 600.0  # what the interval grows to while nothing changes
BEACON_CHAIN_COUNT: Final = 256  # commits a runner's beacon ref leads to at most, where the remote lets it begin anew
ARCHIVE_PART_RUNS: Final = 256  # runs that one commit of an archive adds
ARCHIVE_FIRST_S: Final = 600.0  # after a runner's start, before it looks for days to archive
ARCHIVE_EVERY_S: Final = 6 * 3600.0  # and from then on
BEACON_DEAD_S: Final = 30 * 24 * 3600.0  # silence after which a runner's beacon may be collected
BEACON_LIVE_INTERVALS: Final = 3
BEACON_LIVE_SLACK_S: Final = 120.0
LOG_CHUNK_MAX_BYTES: Final = 256 * KIB
EMBEDDED_IDLE_S: Final = 60.0
EPHEMERAL_DELIVERY_S: Final = 600.0  # how long a runner that keeps nothing tries to deliver its result
GIT_WALL_S: Final = 60.0  # how long one git call over a network may make no progress
TRANSFER_WALL_S: Final = TREE_MAX_BYTES / UPLINK_SLOW_BYTES_PER_S  # one git call, as long as it makes progress
STOP_PUSH_S: Final = 2.0  # how long a push may go on after a runner is asked to end; a listing or fetch may not
STOP_RUNS_S: Final = 3.5  # what a runner that leaves its runs to the next start waits for their threads
WAKE_GRACE_S: Final = 60.0  # after a machine woke: how long a lease that ran out meanwhile may take to be renewed
GIT_LOCAL_WALL_S: Final = 20.0  # one git call on this machine
GIT_OBJECT_MEMORY_BYTES: Final = 256 * MIB  # one piece of memory of the git that reads objects
GIT_OBJECT_SERVER_BYTES: Final = 1024 * MIB  # all of its address space, packs that it maps included
GIT_UPKEEP_WALL_S: Final = 600.0  # one that packs or prunes a repository of ours, while nothing else waits
UPKEEP_EVERY_S: Final = 3600.0  # between two looks of an idle runner at what could be packed or pruned
UPKEEP_RUNS_COUNT: Final = 16  # and as many runs that ended, if they come sooner
CLAIM_CHAIN_MAX_COUNT: Final = 10_000
