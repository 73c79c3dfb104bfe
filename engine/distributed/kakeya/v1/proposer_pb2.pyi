from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RowFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROW_FORMAT_UNSPECIFIED: _ClassVar[RowFormat]
    ROW_FORMAT_FLOAT32: _ClassVar[RowFormat]
    ROW_FORMAT_BFLOAT16: _ClassVar[RowFormat]
    ROW_FORMAT_FLOAT16: _ClassVar[RowFormat]
    ROW_FORMAT_FLOAT8_E4M3: _ClassVar[RowFormat]
ROW_FORMAT_UNSPECIFIED: RowFormat
ROW_FORMAT_FLOAT32: RowFormat
ROW_FORMAT_BFLOAT16: RowFormat
ROW_FORMAT_FLOAT16: RowFormat
ROW_FORMAT_FLOAT8_E4M3: RowFormat

class DescribeProposerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeProposerResponse(_message.Message):
    __slots__ = ("drafter",)
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    drafter: DrafterFacts
    def __init__(self, drafter: _Optional[_Union[DrafterFacts, _Mapping]] = ...) -> None: ...

class DescribeDFlashRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeDFlashResponse(_message.Message):
    __slots__ = ("drafter",)
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    drafter: DrafterFacts
    def __init__(self, drafter: _Optional[_Union[DrafterFacts, _Mapping]] = ...) -> None: ...

class ProposeRequest(_message.Message):
    __slots__ = ("open", "block", "renew", "close")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    open: Open
    block: Block
    renew: Renew
    close: Close
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., block: _Optional[_Union[Block, _Mapping]] = ..., renew: _Optional[_Union[Renew, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ...) -> None: ...

class ProposeResponse(_message.Message):
    __slots__ = ("opened", "draft")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    draft: BlockDraft
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., draft: _Optional[_Union[BlockDraft, _Mapping]] = ...) -> None: ...

class DraftBlocksRequest(_message.Message):
    __slots__ = ("open", "block", "renew", "close", "chunk")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    open: Open
    block: Block
    renew: Renew
    close: Close
    chunk: Chunk
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., block: _Optional[_Union[Block, _Mapping]] = ..., renew: _Optional[_Union[Renew, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class DraftBlocksResponse(_message.Message):
    __slots__ = ("opened", "draft")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    draft: BlockDraft
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., draft: _Optional[_Union[BlockDraft, _Mapping]] = ...) -> None: ...

class DrafterFacts(_message.Message):
    __slots__ = ("protocol", "name", "digest", "format", "parameters", "block_size", "settings_json", "capture", "context_tokens", "hidden_size", "vocab_size", "tokenizer", "lease_ms", "most_proposed")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_JSON_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MOST_PROPOSED_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    name: str
    digest: str
    format: str
    parameters: int
    block_size: int
    settings_json: str
    capture: _containers.RepeatedScalarFieldContainer[int]
    context_tokens: int
    hidden_size: int
    vocab_size: int
    tokenizer: str
    lease_ms: int
    most_proposed: int
    def __init__(self, protocol: _Optional[int] = ..., name: _Optional[str] = ..., digest: _Optional[str] = ..., format: _Optional[str] = ..., parameters: _Optional[int] = ..., block_size: _Optional[int] = ..., settings_json: _Optional[str] = ..., capture: _Optional[_Iterable[int]] = ..., context_tokens: _Optional[int] = ..., hidden_size: _Optional[int] = ..., vocab_size: _Optional[int] = ..., tokenizer: _Optional[str] = ..., lease_ms: _Optional[int] = ..., most_proposed: _Optional[int] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("compatibility", "row_format", "resume", "shaping")
    COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    ROW_FORMAT_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    SHAPING_FIELD_NUMBER: _ClassVar[int]
    compatibility: bytes
    row_format: RowFormat
    resume: str
    shaping: Shaping
    def __init__(self, compatibility: _Optional[bytes] = ..., row_format: _Optional[_Union[RowFormat, str]] = ..., resume: _Optional[str] = ..., shaping: _Optional[_Union[Shaping, _Mapping]] = ...) -> None: ...

class Shaping(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("session", "context_length")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    session: str
    context_length: int
    def __init__(self, session: _Optional[str] = ..., context_length: _Optional[int] = ...) -> None: ...

class Block(_message.Message):
    __slots__ = ("session", "sequence", "segments", "rows", "ask")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    session: str
    sequence: int
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    rows: Rows
    ask: Ask
    def __init__(self, session: _Optional[str] = ..., sequence: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("start", "tokens")
    START_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    start: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, start: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("format", "rows", "width", "total_bytes", "crc32", "data")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    format: RowFormat
    rows: int
    width: int
    total_bytes: int
    crc32: int
    data: bytes
    def __init__(self, format: _Optional[_Union[RowFormat, str]] = ..., rows: _Optional[int] = ..., width: _Optional[int] = ..., total_bytes: _Optional[int] = ..., crc32: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("sequence", "offset", "data")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    offset: int
    data: bytes
    def __init__(self, sequence: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("bonus", "context_length", "count", "token_hash")
    BONUS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_HASH_FIELD_NUMBER: _ClassVar[int]
    bonus: int
    context_length: int
    count: int
    token_hash: bytes
    def __init__(self, bonus: _Optional[int] = ..., context_length: _Optional[int] = ..., count: _Optional[int] = ..., token_hash: _Optional[bytes] = ...) -> None: ...

class Renew(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class BlockDraft(_message.Message):
    __slots__ = ("sequence", "tokens", "skipped", "draft_us", "forwards", "held_bytes", "proposals")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    DRAFT_US_FIELD_NUMBER: _ClassVar[int]
    FORWARDS_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROPOSALS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    skipped: str
    draft_us: int
    forwards: int
    held_bytes: int
    proposals: _containers.RepeatedCompositeFieldContainer[Proposal]
    def __init__(self, sequence: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., skipped: _Optional[str] = ..., draft_us: _Optional[int] = ..., forwards: _Optional[int] = ..., held_bytes: _Optional[int] = ..., proposals: _Optional[_Iterable[_Union[Proposal, _Mapping]]] = ...) -> None: ...

class Proposal(_message.Message):
    __slots__ = ("tokens", "probabilities")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    probabilities: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, tokens: _Optional[_Iterable[int]] = ..., probabilities: _Optional[_Iterable[float]] = ...) -> None: ...

class DescribeRestorationRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeRestorationResponse(_message.Message):
    __slots__ = ("restoration",)
    RESTORATION_FIELD_NUMBER: _ClassVar[int]
    restoration: RestorationFacts
    def __init__(self, restoration: _Optional[_Union[RestorationFacts, _Mapping]] = ...) -> None: ...

class RestorationFacts(_message.Message):
    __slots__ = ("protocol", "name", "digest", "config_json", "capture", "hidden_size", "lease_ms")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    name: str
    digest: str
    config_json: str
    capture: _containers.RepeatedScalarFieldContainer[int]
    hidden_size: int
    lease_ms: int
    def __init__(self, protocol: _Optional[int] = ..., name: _Optional[str] = ..., digest: _Optional[str] = ..., config_json: _Optional[str] = ..., capture: _Optional[_Iterable[int]] = ..., hidden_size: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("open", "shown", "chunk", "wanted", "renew", "close")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    open: Open
    shown: Shown
    chunk: Chunk
    wanted: Wanted
    renew: Renew
    close: Close
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., shown: _Optional[_Union[Shown, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., wanted: _Optional[_Union[Wanted, _Mapping]] = ..., renew: _Optional[_Union[Renew, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ...) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ("opened", "made", "chunk")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    MADE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    made: Made
    chunk: Chunk
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., made: _Optional[_Union[Made, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class Shown(_message.Message):
    __slots__ = ("sequence", "start", "rows")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    start: int
    rows: Rows
    def __init__(self, sequence: _Optional[int] = ..., start: _Optional[int] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("sequence", "layers", "begin", "end")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    layers: _containers.RepeatedScalarFieldContainer[int]
    begin: int
    end: int
    def __init__(self, sequence: _Optional[int] = ..., layers: _Optional[_Iterable[int]] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Made(_message.Message):
    __slots__ = ("sequence", "rows")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    rows: Rows
    def __init__(self, sequence: _Optional[int] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ...) -> None: ...
