% Prints the variables of a NetCDF file as Octave reads them: octave-cli read_netcdf.m FILE
% "variable", the name in hexadecimal and the lengths of its axes, the fastest first; then a line a value.
pkg load netcdf
import_netcdf
id = netcdf.open(argv(){1}, "NC_NOWRITE");
[~, count] = netcdf.inq(id);
for i = 0:count - 1
    [name, kind, dimensions] = netcdf.inqVar(id, i);
    if kind == 2
        continue
    end
    printf("variable %s", sprintf("%02x", uint8(name)));
    for dimension = dimensions
        [~, length] = netcdf.inqDim(id, dimension);
        printf(" %d", length);
    end
    printf("\n");
    values = netcdf.getVar(id, i)(:);
    if isinteger(values)
        % printf takes them for doubles.
        disp(values);
    else
        printf("%.17g\n", values);
    end
end
netcdf.close(id);
