"""A fault planted in the text of a kernel, to see whether the tests notice it."""

from rowgrad_wgpu import source


def plant(monkeypatch, name, right, wrong):
    """Puts `wrong` in the place of `right` in a file of `shaders`, as a compiler would that takes one for the other."""
    text, original = source.shader_text(name), source.shader_text
    assert right in text, f"{name} has no {right!r}"
    monkeypatch.setattr(source, "shader_text", lambda one: text.replace(right, wrong) if one == name else original(one))
