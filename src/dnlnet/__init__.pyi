from dnlnet.artifacts.load import (
    TrainedModel as TrainedModel,
)
from dnlnet.artifacts.load import (
    load as load,
)
from dnlnet.attention import (
    PRESETS as PRESETS,
)
from dnlnet.attention import (
    VARIANTS as VARIANTS,
)
from dnlnet.attention import (
    AttentionMaps as AttentionMaps,
)
from dnlnet.attention import (
    BlockSettings as BlockSettings,
)
from dnlnet.attention import (
    NonLocal1d as NonLocal1d,
)
from dnlnet.attention import (
    NonLocal2d as NonLocal2d,
)
from dnlnet.attention import (
    NonLocal3d as NonLocal3d,
)
from dnlnet.attention import (
    NonLocalBlock as NonLocalBlock,
)
from dnlnet.attention import (
    Variant as Variant,
)
from dnlnet.attention import (
    insert as insert,
)
from dnlnet.bench.equalities import (
    verify_device as verify_device,
)
from dnlnet.bundled import (
    PHOTOS as PHOTOS,
)
from dnlnet.conversion.converting import (
    convert as convert,
)
from dnlnet.lens.measure.ablate import (
    ablate as ablate,
)
from dnlnet.lens.measure.theory import (
    verify as verify,
)
from dnlnet.lens.trace.capture import (
    capture as capture,
)
from dnlnet.libraries.transformer import (
    load_transformer as load_transformer,
)
from dnlnet.recipes.override import (
    override as override,
)
from dnlnet.registry import (
    create_model as create_model,
)
from dnlnet.registry import (
    find_recipe as find_recipe,
)
from dnlnet.registry import (
    list_recipes as list_recipes,
)
from dnlnet.registry import (
    register_backbone as register_backbone,
)
from dnlnet.registry import (
    register_data_set as register_data_set,
)
from dnlnet.registry import (
    register_task as register_task,
)
from dnlnet.runs.attend import (
    attend as attend,
)
from dnlnet.runs.check import (
    check_data as check_data,
)
from dnlnet.runs.complexity import (
    complexity as complexity,
)
from dnlnet.runs.consistency import (
    consistency as consistency,
)
from dnlnet.runs.evaluate import (
    evaluate as evaluate,
)
from dnlnet.runs.export import (
    export as export,
)
from dnlnet.runs.predict import (
    predict as predict,
)
from dnlnet.runs.profile import (
    profile as profile,
)
from dnlnet.runs.study_report import (
    study as study,
)
from dnlnet.runs.train import (
    train as train,
)

__version__: str
