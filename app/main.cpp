#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "app/cli/arguments.h"
#include "app/cli/program.h"
#include "core/error.h"
#include "core/formats/json_view.h"
#include "core/log.h"
#include "core/memory_reserve.h"
#include "core/os/descriptor.h"
#include "core/os/paths.h"
#include "core/os/shrunk_file.h"
#include "core/os/stop.h"
#include "core/parallel.h"
#include "core/sha256.h"

namespace {

qtrain::Error internal_error(const std::exception& e) {
  return {qtrain::ErrorKind::internal, {.cause = std::string("internal error: ") + e.what()}};
}

}  // namespace

int main(int argc, char** argv) try {
  if (!qtrain::open_missing_standard_streams()) return static_cast<int>(qtrain::ErrorKind::internal);
  qtrain::reserve_memory_for_errors();
  qtrain::install_stop_handlers();
  qtrain::install_shrunk_file_handler();
  const auto log = std::make_shared<qtrain::Log>();
  try {
    const std::vector<std::string> words(argv + 1, argv + (argc > 0 ? argc : 1));
    const qtrain::Sha256 first;  // libcrypto crashes if there is no memory when it is first used: not within a run
    const qtrain::StopAnswers answers(*log, [&] { return qtrain::report_stop(*log); });
    return qtrain::run_program(words, log);
  } catch (const qtrain::Error& e) {
    return qtrain::report_error(e, *log);
  } catch (const nlohmann::json::exception& e) {
    return qtrain::report_error(
        {qtrain::ErrorKind::input, {.cause = "a file has unexpected contents: " + qtrain::plain_text(e)}}, *log);
  } catch (const std::filesystem::filesystem_error& e) {
    return qtrain::report_error(qtrain::path_error(e), *log);
  } catch (const std::system_error& e) {
    return qtrain::report_error(qtrain::thread_error(e), *log);
  } catch (const std::bad_alloc&) {
    return qtrain::report_error({qtrain::ErrorKind::memory, {.cause = "out of memory"}}, *log);
  } catch (const std::exception& e) {
    return qtrain::report_error(internal_error(e), *log);
  }
} catch (const std::bad_alloc&) {  // no memory for the error message
  return static_cast<int>(qtrain::ErrorKind::memory);
}
