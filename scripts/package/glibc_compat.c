// What g++'s static runtime takes from glibc 2.36, for a program that is to run with 2.35: std::random_device asks for it.
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t value;
  if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) abort();  // so few bytes come whole, or not at all
  return value;
}
