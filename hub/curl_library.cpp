#include "hub/curl_library.h"

#include <dlfcn.h>

#include <string>

#include "core/os/shared_library.h"

namespace qtrain {
namespace {

template <class Function>
void find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function)
    fail(ErrorKind::input, {.cause = std::string("the function ") + name + " is missing in this libcurl",
                            .remedy = "install a newer one (Debian: libcurl4)"});
}

CurlLibrary load_curl() {
  SharedLibrary library;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"})
    if (!library.handle) library = open_shared_library(name);
  if (!library.handle)
    fail(ErrorKind::input, {.cause = "libcurl, which fetches files of the hub, cannot be loaded: " + library.problem,
                            .remedy = "install it (Debian and Ubuntu: apt-get install libcurl4), or name a folder"});
  CurlLibrary curl;
  int (*global_init)(long) = nullptr;  // NOLINT(google-runtime-int): as in curl.h
  constexpr long kAll = 3;             // NOLINT(google-runtime-int)
  find_function(library.handle, "curl_global_init", global_init);
  find_function(library.handle, "curl_easy_init", curl.easy_init);
  find_function(library.handle, "curl_easy_setopt", curl.easy_setopt);
  find_function(library.handle, "curl_easy_perform", curl.easy_perform);
  find_function(library.handle, "curl_easy_getinfo", curl.easy_getinfo);
  find_function(library.handle, "curl_easy_reset", curl.easy_reset);
  find_function(library.handle, "curl_easy_cleanup", curl.easy_cleanup);
  find_function(library.handle, "curl_easy_strerror", curl.easy_strerror);
  find_function(library.handle, "curl_slist_append", curl.slist_append);
  find_function(library.handle, "curl_slist_free_all", curl.slist_free_all);
  find_function(library.handle, "curl_version", curl.version);
  if (global_init(kAll) != 0) fail(ErrorKind::input, {.cause = "libcurl cannot be initialized"});
  return curl;
}

}  // namespace

const CurlLibrary& curl_library() {
  static const CurlLibrary library = load_curl();
  return library;
}

}  // namespace qtrain
