"""Algorithm 1 line by line, with autograd through the look-ahead. It uses none of mlrsnet's meta-training code."""

import math

import torch
from torch.func import functional_call


def direction(optimizer, group, parameter):
    """d in w_new = w - alpha d, from each optimizer's definition and its state before the step."""
    g, w, state = parameter.grad, parameter.detach(), optimizer.state.get(parameter, {})
    decay, kind = group["weight_decay"], type(optimizer).__name__
    if kind != "AdamW":
        g = g + decay * w
    if kind == "SGD":
        momentum, old = group["momentum"], state.get("momentum_buffer")
        if momentum:
            buffer = g if old is None else momentum * old + (1 - group["dampening"]) * g
            g = g + momentum * buffer if group["nesterov"] else buffer
        return g
    if kind in ("Adam", "AdamW"):
        (beta1, beta2), step = group["betas"], float(state.get("step", 0)) + 1
        m = beta1 * state.get("exp_avg", 0) + (1 - beta1) * g
        v = beta2 * state.get("exp_avg_sq", 0) + (1 - beta2) * g**2
        update = (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + group["eps"])
        return update + decay * w if kind == "AdamW" else update
    if kind == "RMSprop":
        square = group["alpha"] * state.get("square_avg", 0) + (1 - group["alpha"]) * g**2
        update = g / (square.sqrt() + group["eps"])
        return group["momentum"] * state.get("momentum_buffer", 0) + update if group["momentum"] else update
    raise AssertionError(kind)


def hypergradient(model, optimizer, ratios, alpha, val_loss):
    """d L_val(w - alpha d) / d alpha, through a look-ahead model built with torch.func. Buffers are copied."""
    alpha = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    names = {parameter: name for name, parameter in model.named_parameters()}
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    for group, ratio in zip(optimizer.param_groups, ratios, strict=True):
        for parameter in group["params"]:
            d = direction(optimizer, group, parameter)
            weights[names[parameter]] = parameter.detach() - alpha * ratio * d
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    loss = val_loss(lambda x: functional_call(model, (weights, buffers), (x,)))
    (gradient,) = torch.autograd.grad(loss, alpha)
    return gradient.item(), loss.item()


class Algorithm1:
    """Plain SGD with one group. w and phi are dictionaries, and Adam for phi is written out."""

    def __init__(self, model, net, train_loss, val_loss, every, classes, eta=1e-3, decay=1e-4):
        self.model, self.net, self.train_loss, self.val_loss = model, net, train_loss, val_loss
        self.w = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.phi = {name: p.detach().clone() for name, p in net.named_parameters()}
        self.m = {name: torch.zeros_like(p) for name, p in self.phi.items()}
        self.v = {name: torch.zeros_like(p) for name, p in self.phi.items()}
        self.theta, self.gamma, self.t, self.updates = net.initial_state(), None, 0, 0
        self.every, self.classes, self.eta, self.decay = every, classes, eta, decay

    def lr(self, f, phi):
        p, theta = functional_call(self.net, phi, (f.detach().reshape(1), self.theta))
        return self.gamma * p, theta

    def step(self):
        w = {name: p.clone().requires_grad_() for name, p in self.w.items()}
        f = self.train_loss(self.t, lambda x: functional_call(self.model, w, (x,)))
        g = dict(zip(w, torch.autograd.grad(f, list(w.values())), strict=True))
        if self.gamma is None:
            f0 = f.item()
            self.gamma = math.sqrt(f0) * math.log(f0 * self.classes) / (4 * self.classes**0.25)
        if self.t % self.every == 0:  # line 4
            phi = {name: p.clone().requires_grad_() for name, p in self.phi.items()}
            alpha, _ = self.lr(f, phi)
            hat = {name: self.w[name] - alpha * g[name] for name in self.w}
            val = self.val_loss(self.t, lambda x: functional_call(self.model, hat, (x,)))
            self.adam(dict(zip(phi, torch.autograd.grad(val, list(phi.values())), strict=True)))  # line 6
        with torch.no_grad():
            alpha, self.theta = self.lr(f, self.phi)
            self.w = {name: self.w[name] - alpha * g[name] for name in self.w}  # line 8
        self.t += 1
        return alpha.item()

    def adam(self, gradients):
        self.updates += 1
        for name, gradient in gradients.items():
            gradient = gradient + self.decay * self.phi[name]
            self.m[name] = 0.9 * self.m[name] + 0.1 * gradient
            self.v[name] = 0.999 * self.v[name] + 0.001 * gradient**2
            m_hat = self.m[name] / (1 - 0.9**self.updates)
            v_hat = self.v[name] / (1 - 0.999**self.updates)
            self.phi[name] = self.phi[name] - self.eta * m_hat / (v_hat.sqrt() + 1e-8)
