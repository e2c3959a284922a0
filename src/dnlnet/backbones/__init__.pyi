from dnlnet.backbones.image import (
    Backbone as Backbone,
)
from dnlnet.backbones.resnet3d import (
    SlowOnly as SlowOnly,
)
from dnlnet.backbones.resnet3d import (
    inflate as inflate,
)
from dnlnet.backbones.rows import (
    BACKBONES as BACKBONES,
)
from dnlnet.backbones.rows import (
    VIDEO_BACKBONES as VIDEO_BACKBONES,
)
from dnlnet.backbones.rows import (
    BackboneRow as BackboneRow,
)
from dnlnet.backbones.weights import (
    LoadReport as LoadReport,
)
from dnlnet.backbones.weights import (
    find_backbones as find_backbones,
)
from dnlnet.backbones.weights import (
    load_weights as load_weights,
)
from dnlnet.backbones.weights import (
    read_content as read_content,
)
from dnlnet.backbones.weights import (
    read_state_dict as read_state_dict,
)
from dnlnet.backbones.weights import (
    split_checkpoint as split_checkpoint,
)
