# Prints the columns of a CSV file as a package of R reads it: Rscript read_csv.R PACKAGE FILE
# A line a value: N (missing), d and a number, b and a boolean, t and the bytes of text in hexadecimal; a column begins with "column" and its name as text.
arguments <- commandArgs(trailingOnly = TRUE)
path <- arguments[2]
table <- switch(arguments[1],
    base = read.csv(path, check.names = FALSE, na.strings = "", colClasses = NA, encoding = "UTF-8", stringsAsFactors = FALSE, blank.lines.skip = FALSE, strip.white = FALSE),
    data.table = as.data.frame(data.table::fread(path, sep = ",", header = TRUE, na.strings = "", check.names = FALSE, encoding = "UTF-8", integer64 = "character", strip.white = FALSE, showProgress = FALSE, data.table = FALSE)),
    readr = as.data.frame(readr::read_csv(path, na = "", show_col_types = FALSE, progress = FALSE, name_repair = "minimal", trim_ws = FALSE, skip_empty_rows = FALSE, guess_max = Inf, num_threads = 1)))
hexadecimal <- function(text) if (is.na(text)) "N" else paste0("t", paste(charToRaw(enc2utf8(text)), collapse = ""))
for (i in seq_along(table)) {
    column <- table[[i]]
    cat("column", hexadecimal(names(table)[i]), "\n", sep = "")
    if (inherits(column, "Date")) column <- format(column)
    if (inherits(column, "POSIXct")) column <- format(column, "%Y-%m-%dT%H:%M:%OS6", tz = "UTC")
    lines <- if (is.logical(column)) ifelse(is.na(column), "N", ifelse(column, "btrue", "bfalse"))
        else if (is.numeric(column)) ifelse(is.na(column) & !is.nan(column), "N", paste0("d", sprintf("%.17g", column)))
        else vapply(as.character(column), hexadecimal, "")
    writeLines(lines)
}
