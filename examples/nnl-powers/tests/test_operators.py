from nnl_core import lookup
from nnl_core.testing import check_operator, check_plugin
from nnl_powers.plugin import PowersPlugin


def test_plugin():
    check_plugin(PowersPlugin)


def test_power():
    check_operator(lookup("powers::power"))
