# Prints the variables of a NetCDF file as R's ncdf4 reads them: Rscript read_netcdf.R FILE
# "variable", the name in hexadecimal and the lengths of its axes, the fastest first; then a line a value.
library(ncdf4)
file <- nc_open(commandArgs(trailingOnly = TRUE)[1], readunlim = FALSE)
show <- function(name, lengths, values) {
    cat("variable ", paste(charToRaw(name), collapse = ""), " ", paste(lengths, collapse = " "), "\n", sep = "")
    writeLines(if (is.character(values)) vapply(values, function(v) paste(charToRaw(v), collapse = ""), "") else sprintf("%.17g", as.vector(values)))
}
for (variable in file$var) {
    if (variable$prec == "char") next
    show(variable$name, variable$varsize, ncvar_get(file, variable, raw_datavals = TRUE, collapse_degen = FALSE))
}
