#include "train/import/gguf_import.h"

#include "train/cli/arguments.h"

namespace qtrain {

int run_import(const Arguments& args) {
  ImportOptions options{.gguf = args.operand(0), .output = args.required("output")};
  if (const auto dtype = args.text("dtype"); dtype && *dtype != "auto") options.dtype = dtype_named(*dtype);
  import_gguf(options);
  args.log().info("imported {} into {}", args.operand(0), options.output.string());
  return 0;
}

}  // namespace qtrain
