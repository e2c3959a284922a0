"""Public names of the package."""

import importlib
import pkgutil

import dnlnet


def test_no_module_hides_a_public_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(dnlnet.__path__)}
    assert not modules & set(dnlnet.__all__)


def test_modules_of_conversion_and_deployment_can_be_imported_under_another_name() -> None:
    import dnlnet.conversion.family as family
    import dnlnet.deployment.network as network

    assert family is importlib.import_module("dnlnet.conversion.family")
    assert network is importlib.import_module("dnlnet.deployment.network")
