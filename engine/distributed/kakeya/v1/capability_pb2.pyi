from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_ROLE_UNSPECIFIED: _ClassVar[NodeRole]
    NODE_ROLE_TARGET: _ClassVar[NodeRole]
    NODE_ROLE_DRAFTER: _ClassVar[NodeRole]
NODE_ROLE_UNSPECIFIED: NodeRole
NODE_ROLE_TARGET: NodeRole
NODE_ROLE_DRAFTER: NodeRole

class Card(_message.Message):
    __slots__ = ("node", "generation", "version", "roles", "models", "device", "memory_total_bytes", "memory_free_bytes", "endpoints")
    class EndpointsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    node: str
    generation: int
    version: int
    roles: _containers.RepeatedScalarFieldContainer[NodeRole]
    models: _containers.RepeatedCompositeFieldContainer[ModelFacts]
    device: str
    memory_total_bytes: int
    memory_free_bytes: int
    endpoints: _containers.ScalarMap[str, str]
    def __init__(self, node: _Optional[str] = ..., generation: _Optional[int] = ..., version: _Optional[int] = ..., roles: _Optional[_Iterable[_Union[NodeRole, str]]] = ..., models: _Optional[_Iterable[_Union[ModelFacts, _Mapping]]] = ..., device: _Optional[str] = ..., memory_total_bytes: _Optional[int] = ..., memory_free_bytes: _Optional[int] = ..., endpoints: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ModelFacts(_message.Message):
    __slots__ = ("name", "digest", "tokenizer", "vocab_size")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    name: str
    digest: str
    tokenizer: str
    vocab_size: int
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[str] = ..., tokenizer: _Optional[str] = ..., vocab_size: _Optional[int] = ...) -> None: ...

class CardAge(_message.Message):
    __slots__ = ("node", "generation", "version", "heartbeat", "silent_ms")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    node: str
    generation: int
    version: int
    heartbeat: int
    silent_ms: int
    def __init__(self, node: _Optional[str] = ..., generation: _Optional[int] = ..., version: _Optional[int] = ..., heartbeat: _Optional[int] = ..., silent_ms: _Optional[int] = ...) -> None: ...

class ToldCard(_message.Message):
    __slots__ = ("card", "heartbeat", "silent_ms")
    CARD_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    card: bytes
    heartbeat: int
    silent_ms: int
    def __init__(self, card: _Optional[bytes] = ..., heartbeat: _Optional[int] = ..., silent_ms: _Optional[int] = ...) -> None: ...

class ExchangeRequest(_message.Message):
    __slots__ = ("known", "told")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    known: _containers.RepeatedCompositeFieldContainer[CardAge]
    told: _containers.RepeatedCompositeFieldContainer[ToldCard]
    def __init__(self, known: _Optional[_Iterable[_Union[CardAge, _Mapping]]] = ..., told: _Optional[_Iterable[_Union[ToldCard, _Mapping]]] = ...) -> None: ...

class ExchangeResponse(_message.Message):
    __slots__ = ("known", "told", "wanted")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    known: _containers.RepeatedCompositeFieldContainer[CardAge]
    told: _containers.RepeatedCompositeFieldContainer[ToldCard]
    wanted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, known: _Optional[_Iterable[_Union[CardAge, _Mapping]]] = ..., told: _Optional[_Iterable[_Union[ToldCard, _Mapping]]] = ..., wanted: _Optional[_Iterable[str]] = ...) -> None: ...

class ListCardsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListCardsResponse(_message.Message):
    __slots__ = ("told",)
    TOLD_FIELD_NUMBER: _ClassVar[int]
    told: _containers.RepeatedCompositeFieldContainer[ToldCard]
    def __init__(self, told: _Optional[_Iterable[_Union[ToldCard, _Mapping]]] = ...) -> None: ...
