"""What QGIS says of raster layers, as JSON: a list of an object for each layer, in order.

    /usr/bin/python3 qgis_layers.py LAYER...

A layer is the path of a file, or what GDAL opens as one, such as `NETCDF:file.nc:variable`. Runs where the distribution's QGIS is.
"""

import json
import os
import sys

os.environ["QT_QPA_PLATFORM"] = "offscreen"

from qgis.core import Qgis, QgsApplication, QgsRasterLayer  # noqa: E402, which looks at the platform

METHODS = {Qgis.Byte: int, Qgis.UInt16: int, Qgis.Int16: int, Qgis.Int32: int, Qgis.UInt32: int, Qgis.Float32: float, Qgis.Float64: float}


def values(provider, band, layer):
    """The values of a band by row; null where there is no data."""
    block = provider.block(band, layer.extent(), layer.width(), layer.height())
    of = METHODS[block.dataType()]
    cells = lambda row: [None if block.isNoData(row, column) else of(block.value(row, column)) for column in range(block.width())]
    return [cells(row) for row in range(block.height())]


def described(source):
    """A layer; null if QGIS cannot open it."""
    layer = QgsRasterLayer(source, "layer", "gdal")
    if not layer.isValid():
        return None
    provider, extent = layer.dataProvider(), layer.extent()
    bands = range(1, layer.bandCount() + 1)
    return {
        "crs": [layer.crs().isValid(), layer.crs().authid(), layer.crs().toProj()],
        "extent": [extent.xMinimum(), extent.yMinimum(), extent.xMaximum(), extent.yMaximum()],
        "size": [layer.width(), layer.height()],
        "names": [layer.bandName(band) for band in bands],
        "nodata": [str(provider.sourceNoDataValue(band)) if provider.sourceHasNoDataValue(band) else None for band in bands],
        "scale": [[provider.bandScale(band), provider.bandOffset(band)] for band in bands],
        "colours": [provider.colorInterpretationName(band) for band in bands],
        "renderer": layer.renderer().type(),
        "values": [values(provider, band, layer) for band in bands],
    }


def main():
    """Prints what QGIS says."""
    application = QgsApplication([], False)
    application.initQgis()
    print(json.dumps({"version": Qgis.QGIS_VERSION, "layers": [described(source) for source in sys.argv[1:]]}))
    application.exitQgis()


if __name__ == "__main__":
    main()
