#pragma once
#include "app/cli/arguments.h"

namespace qtrain {

/// The commands, each in the file of its name. They return the exit code; command_table.cpp refers to them.
int run_bench(const Arguments& arguments);
int run_chat(const Arguments& arguments);
int run_clean(const Arguments& arguments);
int run_compare(const Arguments& arguments);
int run_completion(const Arguments& arguments);
int run_config(const Arguments& arguments);
int run_datasets(const Arguments& arguments);
int run_doctor(const Arguments& arguments);
int run_estimate(const Arguments& arguments);
int run_eval(const Arguments& arguments);
int run_export(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_import(const Arguments& arguments);
int run_init(const Arguments& arguments);
int run_inspect(const Arguments& arguments);
int run_launch_script(const Arguments& arguments);
int run_man(const Arguments& arguments);
int run_merge(const Arguments& arguments);
int run_monitor(const Arguments& arguments);
int run_preprocess(const Arguments& arguments);
int run_push(const Arguments& arguments);
int run_quantize(const Arguments& arguments);
int run_render(const Arguments& arguments);
int run_report(const Arguments& arguments);
int run_reproduce(const Arguments& arguments);
int run_serve(const Arguments& arguments);
int run_tokenize(const Arguments& arguments);
int run_train(const Arguments& arguments);
int run_tune(const Arguments& arguments);
int run_validate(const Arguments& arguments);
int run_verify(const Arguments& arguments);

}  // namespace qtrain
