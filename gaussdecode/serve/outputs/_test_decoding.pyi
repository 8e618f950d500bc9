from gaussdecode.serve.outputs._rows import Writer

class TestDecodingWriter(Writer):
    def __init__(self, *, has_xids: bool, has_times: bool, is_lazy: bool) -> None: ...
