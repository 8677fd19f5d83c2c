#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "train/cli/arguments.h"
#include "train/stop.h"

int main(int argc, char** argv) {
  qtrain::install_stop_handlers();
  const auto log = std::make_shared<qtrain::Log>();
  try {
    const std::vector<std::string> words(argv + 1, argv + (argc > 0 ? argc : 1));
    return qtrain::run_program(words, log);
  } catch (const qtrain::Error& e) {
    log->error("{}", e.what());
    return e.exit_code();
  } catch (const std::bad_alloc&) {
    log->error("out of memory");
    return static_cast<int>(qtrain::ErrorKind::memory);
  } catch (const std::exception& e) {
    log->error("internal error: {}", e.what());
    return static_cast<int>(qtrain::ErrorKind::internal);
  }
}
