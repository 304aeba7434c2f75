"""Random headers and frames."""

from hypothesis import strategies as st

from geotrain.transport.frame import Bye, Data, Hello, Status
from geotrain.transport.header import Direction, Header

u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


def printable(most_bytes: int, least: int = 1):
    text = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=least, max_size=most_bytes)
    return text.filter(lambda name: len(name.encode()) <= most_bytes and name.isprintable())


names = printable(40)
headers = st.builds(
    Header, job=names, step=u64, pipeline=u32, stage=u32, microbatch=u32, direction=st.sampled_from(Direction)
)


@st.composite
def hellos(draw) -> Hello:
    window = draw(st.integers(1, 2**64 - 1))
    return Hello(
        job=draw(names),
        node=draw(names),
        channel=draw(names),
        session=draw(st.binary(min_size=16, max_size=16)),
        window_bytes=window,
        max_buffer_bytes=draw(st.integers(1, window)),
        max_chunk_bytes=draw(st.integers(512, 2**32 - 1)),
        peer_timeout_ms=draw(st.integers(100, 2**32 - 1)),
        resumes=draw(st.booleans()),
    )


@st.composite
def datas(draw) -> Data:
    chunk = draw(st.integers(1, 2**32 - 1))
    piece = draw(st.integers(0, 2**24))
    total = draw(st.integers(piece * chunk + 1, piece * chunk + 2**32)) if piece else draw(st.integers(0, 2**40))
    return Data(
        header=draw(headers),
        number=draw(u64),
        offset=piece * chunk,
        total_bytes=total,
        chunk_bytes=chunk,
        checksum=draw(u32),
    )


frames = st.one_of(
    hellos(),
    datas(),
    st.builds(Status, acknowledged=u64, taken=u64, connections=u32),
    st.builds(Bye, sent=u64, reason=printable(120, least=0)),
)
