#include <benchmark/benchmark.h>

#include "kernels/cpu/isa.h"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("cpu", qtrain::describe_cpu());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
