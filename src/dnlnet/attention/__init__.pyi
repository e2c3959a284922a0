from dnlnet.attention.block import (
    NonLocal1d as NonLocal1d,
)
from dnlnet.attention.block import (
    NonLocal2d as NonLocal2d,
)
from dnlnet.attention.block import (
    NonLocal3d as NonLocal3d,
)
from dnlnet.attention.block import (
    NonLocalBlock as NonLocalBlock,
)
from dnlnet.attention.insertion import (
    insert as insert,
)
from dnlnet.attention.maps import (
    AttentionMaps as AttentionMaps,
)
from dnlnet.attention.maps import (
    Terms as Terms,
)
from dnlnet.attention.spec import (
    PRESETS as PRESETS,
)
from dnlnet.attention.spec import (
    VARIANTS as VARIANTS,
)
from dnlnet.attention.spec import (
    BlockSettings as BlockSettings,
)
from dnlnet.attention.spec import (
    Variant as Variant,
)
