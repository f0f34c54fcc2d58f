// The subcommands of `ranvier`. Each takes the words behind its name and returns the exit code: 0 done, 1 failed. They
// throw Error; one of kind usage becomes exit code 2.
#pragma once

#include "flags.h"

namespace ranvier::cli {

int run_bench(const Arguments&);
int run_codec(const Arguments&);
int run_design(const Arguments&);
int run_doctor(const Arguments&);
int run_key(const Arguments&);
int run_plan(const Arguments&);
int run_probe(const Arguments&);
int run_report(const Arguments&);
int run_simulate(const Arguments&);

}  // namespace ranvier::cli
