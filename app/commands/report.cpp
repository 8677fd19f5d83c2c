#include "core/utf8.h"
#include "report/report_page.h"

#include <fmt/format.h>

#include "app/commands/commands.h"
#include "app/commands/read_files.h"
#include "app/commands/result_place.h"
#include "core/os/file.h"
#include "core/plural.h"

namespace qtrain {

int run_report(const Arguments& args) {
  const std::filesystem::path folder = args.operand(0);
  const RunRecord run = read_run(folder);
  const std::filesystem::path page = args.text("output").value_or((folder / "report.html").string());
  write_result(ResultFile(args, page, files_of_run(folder)).place_now(), report_page({run}));
  for (const std::string& what : run.missing) args.log().warn("{}: {}", one_line(folder.string()), what);
  Json json = figures_of(run);
  json["rows"] = run.rows;
  json["missing"] = run.missing;
  json["output"] = page.string();
  args.give({.text = fmt::format("{} at step {}{}, {}; wrote {}\n", name_of(run.status), run.step,
                                 run.max_steps ? fmt::format(" of {}", *run.max_steps) : "", counted(run.rows, "row"),
                                 page.string()),
             .json = std::move(json)});
  return 0;
}

}  // namespace qtrain
