import io
import os
import shutil
import tempfile
import unittest

from tamis_reader import __main__ as program
from tamis_reader.database import Database
from tamis_reader.prim import Bad

from . import build


def live(directory, now=0):
    """The lines of the default mode."""
    out = io.StringIO()
    program.print_live(Database(directory), now, out.write)
    return out.getvalue()


def everything(directory):
    """The lines of all versions. All other modes run, too."""
    from tamis_reader.check import check
    out = io.StringIO()
    program.print_versions(Database(directory), out.write)
    live(directory)
    check(Database(directory), True, lambda line: None)
    return out.getvalue()


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def save(self, files):
        shutil.rmtree(self.directory)
        build.save(self.directory, files)

    def read(self, files, now=0):
        self.save(files)
        return live(self.directory, now)

    def refuse(self, files, part, read=live):
        self.save(files)
        with self.assertRaises(Bad) as caught:
            read(self.directory)
        self.assertIn(part, str(caught.exception))

    def path(self, name):
        return os.path.join(self.directory, name)
