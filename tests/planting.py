"""A fault planted in the text of a kernel, to see whether the tests notice it."""

from rowgrad_wgpu import source


def planted(name, right, wrong):
    """A `source.shader_text` that puts `wrong` in the place of `right` in one file of `shaders`."""
    text, original = source.shader_text(name), source.shader_text
    assert right in text, f"{name} has no {right!r}"
    return lambda one: text.replace(right, wrong) if one == name else original(one)


def plant(monkeypatch, name, right, wrong):
    """Gives every shader that is assembled from now on the fault."""
    monkeypatch.setattr(source, "shader_text", planted(name, right, wrong))
