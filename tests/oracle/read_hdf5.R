# Prints the data sets of an HDF5 file as R's rhdf5 reads them: Rscript read_hdf5.R FILE
# "data", the path in hexadecimal; then a line a value, in the order of the file: text in hexadecimal behind a "t".
library(rhdf5)
file <- commandArgs(trailingOnly = TRUE)[1]
hexadecimal <- function(text) paste(charToRaw(text), collapse = "")
objects <- h5ls(file)
for (i in which(objects$otype == "H5I_DATASET")) {
    path <- sub("//", "/", paste(objects$group[i], objects$name[i], sep = "/"))
    values <- h5read(file, path, bit64conversion = "double")
    cat("data ", hexadecimal(path), "\n", sep = "")
    if (is.factor(values)) writeLines(as.character(values))
    else if (is.character(values)) writeLines(paste0("t", vapply(values, hexadecimal, "")))
    else writeLines(sprintf("%.17g", as.vector(values)))
}
