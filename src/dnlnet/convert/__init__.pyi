from dnlnet.convert.converting import (
    FAMILIES as FAMILIES,
)
from dnlnet.convert.converting import (
    convert as convert,
)
from dnlnet.convert.converting import (
    read as read,
)
from dnlnet.convert.converting import (
    recognise as recognise,
)
from dnlnet.convert.family import (
    Converted as Converted,
)
from dnlnet.convert.family import (
    Family as Family,
)
from dnlnet.convert.family import (
    ForeignCheckpoint as ForeignCheckpoint,
)
