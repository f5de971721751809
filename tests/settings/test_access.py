"""Settings of access control: what goes together, and that no text shows a secret."""

from __future__ import annotations

import pytest

from cometmq.errors import SettingsError
from cometmq.settings.access import AccessSettings
from cometmq.settings.live_settings import LiveSettings
from cometmq.settings.load import RawSetting, from_options, load

FIRST = '{"username":"root","password":"secret-of-many"}'
INNER = '{"accessKey":"inner","secretKey":"secret-of-many"}'


def loaded(**given: str) -> AccessSettings:
    return load((AccessSettings,), from_options(given)).of(AccessSettings)


def test_users_and_keys_are_read() -> None:
    settings = loaded(
        authenticationEnabled="true",
        initAuthenticationUser=FIRST,
        innerClientAuthenticationCredentials=INNER,
    )
    assert settings.is_guarded
    assert settings.first_user == ("root", "secret-of-many")
    assert settings.inner_credentials == ("inner", "secret-of-many")
    assert loaded().first_user is None
    assert not loaded().is_guarded


@pytest.mark.parametrize(
    "text", ["{", "[]", "3", '{"username":"root"}', '{"username":"","password":"secret-of-many"}']
)
def test_a_bad_user_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(initAuthenticationUser=text)
    assert "initAuthenticationUser is '(not shown)'; it must be a JSON object" in str(caught.value)
    assert "secret-of-many" not in str(caught.value)


def test_what_excludes_each_other_is_refused() -> None:
    with pytest.raises(SettingsError, match="unless authenticationEnabled is true"):
        loaded(authorizationEnabled="true")
    with pytest.raises(SettingsError, match="aclEnable is True; it must be false where"):
        loaded(aclEnable="true", authenticationEnabled="true")


def test_no_list_of_settings_shows_a_secret() -> None:
    live = LiveSettings(
        loaded(initAuthenticationUser=FIRST, innerClientAuthenticationCredentials=INNER)
    )
    assert "initAuthenticationUser=******\n" in live.text()
    assert "secret-of-many" not in live.text()
    with pytest.raises(SettingsError, match="read at the start only") as caught:
        live.prepare(f"initAuthenticationUser={FIRST.replace('root', 'me')}")
    assert "secret-of-many" not in str(caught.value)
    assert live.prepare("").values == {}
    assert "secret" not in repr(live.of(AccessSettings))


def test_a_secret_that_is_no_utf_8_is_not_shown() -> None:
    given = RawSetting("initAuthenticationUser", "secret-of-many\udcff", "f:1")
    with pytest.raises(SettingsError, match="no UTF-8") as caught:
        load((AccessSettings,), [given])
    assert "secret-of-many" not in str(caught.value)
