"""The next block that a warpgroup is to fetch, which may be of a later item than the one it computes."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.core import _aggregate as aggregate

from mla_decode.hopper.planner import FIRST_BLOCK, FIRST_END


@aggregate
class Cursor:
    """A block: its request, its number, its page, and the end of the item that it is in. Items are gone through in order,
    each from block `begin + OFFSET` in steps of STEP."""

    request: gl.tensor
    block: gl.tensor
    end: gl.tensor
    page: gl.tensor
    OFFSET: gl.constexpr
    STEP: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, request, block, end, page, OFFSET, STEP):
        self.request = request
        self.block = block
        self.end = end
        self.page = page
        self.OFFSET = gl.constexpr(OFFSET)
        self.STEP = gl.constexpr(STEP)

    @gluon.jit
    def valid(self):
        """Whether there is such a block."""
        return self.block < self.end

    @gluon.jit
    def located(self, part, pool, last_request):
        """This block, or the first one of the next item that has any, with its page."""
        request, block, end = self.request, self.block, self.end
        while (block >= end) & (request < last_request):
            request += 1
            _, begin, end = part.load_item(request)
            block = begin + self.OFFSET
        return Cursor(request, block, end, pool.load_page(request, block, block < end), self.OFFSET, self.STEP)

    @gluon.jit
    def advanced(self, part, pool, last_request):
        """The block after this one."""
        following = Cursor(self.request, self.block + self.STEP, self.end, self.page, self.OFFSET, self.STEP)
        return following.located(part, pool, last_request)


@gluon.jit
def first_cursor(part, pool, first_request, last_request, OFFSET: gl.constexpr, STEP: gl.constexpr):
    """The first block of a part, found without the request's length, which takes another trip to memory."""
    block = part.load_word(FIRST_BLOCK) + OFFSET
    end = gl.where(last_request < first_request, 0, part.load_word(FIRST_END))
    return Cursor(first_request, block, end, end, OFFSET, STEP).located(part, pool, last_request)
