// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of the fields of the optimizers of torch::optim.
#pragma once

#include <torch/optim.h>

namespace rtrain::checkpoint::optim {

// fields(object, visit) names every member of an options or state class, for both directions.

template <class V>
void fields(torch::optim::SGDOptions& o, V&& visit) {
    visit("lr", o.lr());
    visit("momentum", o.momentum());
    visit("dampening", o.dampening());
    visit("weight_decay", o.weight_decay());
    visit("nesterov", o.nesterov());
}
template <class V>
void fields(torch::optim::SGDParamState& s, V&& visit) {
    visit("momentum_buffer", s.momentum_buffer());
}

template <class O, class V>
void adam_options(O& o, V&& visit) {
    visit("lr", o.lr());
    visit("betas", o.betas());
    visit("eps", o.eps());
    visit("weight_decay", o.weight_decay());
    visit("amsgrad", o.amsgrad());
}
template <class S, class V>
void adam_state(S& s, V&& visit) {
    visit("step", s.step());
    visit("exp_avg", s.exp_avg());
    visit("exp_avg_sq", s.exp_avg_sq());
    visit("max_exp_avg_sq", s.max_exp_avg_sq());
}
template <class V>
void fields(torch::optim::AdamOptions& o, V&& visit) {
    adam_options(o, visit);
}
template <class V>
void fields(torch::optim::AdamParamState& s, V&& visit) {
    adam_state(s, visit);
}
template <class V>
void fields(torch::optim::AdamWOptions& o, V&& visit) {
    adam_options(o, visit);
}
template <class V>
void fields(torch::optim::AdamWParamState& s, V&& visit) {
    adam_state(s, visit);
}

template <class V>
void fields(torch::optim::AdagradOptions& o, V&& visit) {
    visit("lr", o.lr());
    visit("lr_decay", o.lr_decay());
    visit("weight_decay", o.weight_decay());
    visit("initial_accumulator_value", o.initial_accumulator_value());
    visit("eps", o.eps());
}
template <class V>
void fields(torch::optim::AdagradParamState& s, V&& visit) {
    visit("sum", s.sum());
    visit("step", s.step());
}

template <class V>
void fields(torch::optim::RMSpropOptions& o, V&& visit) {
    visit("lr", o.lr());
    visit("alpha", o.alpha());
    visit("eps", o.eps());
    visit("weight_decay", o.weight_decay());
    visit("momentum", o.momentum());
    visit("centered", o.centered());
}
template <class V>
void fields(torch::optim::RMSpropParamState& s, V&& visit) {
    visit("step", s.step());
    visit("square_avg", s.square_avg());
    visit("momentum_buffer", s.momentum_buffer());
    visit("grad_avg", s.grad_avg());
}

template <class V>
void fields(torch::optim::LBFGSOptions& o, V&& visit) {
    visit("lr", o.lr());
    visit("max_iter", o.max_iter());
    visit("max_eval", o.max_eval());
    visit("tolerance_grad", o.tolerance_grad());
    visit("tolerance_change", o.tolerance_change());
    visit("history_size", o.history_size());
    visit("line_search_fn", o.line_search_fn());
}
template <class V>
void fields(torch::optim::LBFGSParamState& s, V&& visit) {
    visit("func_evals", s.func_evals());
    visit("n_iter", s.n_iter());
    visit("t", s.t());
    visit("prev_loss", s.prev_loss());
    visit("d", s.d());
    visit("H_diag", s.H_diag());
    visit("prev_flat_grad", s.prev_flat_grad());
    visit("old_dirs", s.old_dirs());
    visit("old_stps", s.old_stps());
    visit("ro", s.ro());
    visit("al", s.al());
}

} // namespace rtrain::checkpoint::optim
