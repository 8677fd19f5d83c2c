#include "convert/gguf/import.h"

#include <fmt/format.h>

#include "app/commands/commands.h"
#include "app/commands/result_place.h"

namespace qtrain {

int run_import(const Arguments& args) {
  ImportOptions options{.gguf = args.operand(0), .output = args.required("output")};
  options.log = &args.log();
  require_free_folder(args, options.output, {options.gguf});
  if (const auto dtype = args.text("dtype"); dtype && *dtype != "auto") options.dtype = dtype_named(*dtype);
  const bool whole = import_gguf(options) == ImportedParts::model;
  if (!whole) args.log().warn("{} has no tensors; only the tokenizer was imported", args.operand(0));
  args.give({.text = fmt::format("imported {}{} to {}", whole ? "" : "the tokenizer of ", args.operand(0),
                                 options.output.string()),
             .json = {{"output", options.output.string()}, {"parts", whole ? "model" : "tokenizer"}}});
  return 0;
}

}  // namespace qtrain
