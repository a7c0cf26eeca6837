/**
 * Lets Node's test runner know by the context of a call which test it belongs to: where `test()` is
 * put, and whose test an error fails that nobody caught. By itself the runner asks a hook about the
 * beginning and the end of every promise of the process, which is a tenth of what a file takes.
 */
import {
  AsyncLocalStorage,
  AsyncResource,
  type AsyncResourceOptions,
  type HookCallbacks,
  createHook,
  executionAsyncId,
} from 'node:async_hooks';

/** What the runner has for one that runs outside of all tests. */
const NO_TEST = 0;

/** Before anything in the process imports `node:test`. */
export function scopeTests(): void {
  const running = new AsyncLocalStorage<number>();
  let runner: HookCallbacks = {};

  /** What tests and suites of the runner are made of. */
  class Scope extends AsyncResource {
    constructor(type: string, options?: AsyncResourceOptions) {
      super(type, options);
      runner.init?.(this.asyncId(), type, this.triggerAsyncId(), this);
    }

    override runInAsyncScope<This, Args extends unknown[], Result>(
      work: (this: This, ...args: Args) => Result,
      thisArg?: This,
      ...args: Args
    ): Result {
      // A function without `this` takes any.
      const call = (): Result => work.apply(thisArg as This, args);
      return super.runInAsyncScope(() => running.run(this.asyncId(), call));
    }
  }

  const hook = { enable: () => hook, disable: () => hook };
  const hooks = process.getBuiltinModule('node:async_hooks');
  Object.assign(hooks, {
    AsyncResource: Scope,
    createHook: (callbacks: HookCallbacks) => {
      runner = callbacks;
      return hook;
    },
    executionAsyncId: () => running.getStore() ?? NO_TEST,
  });
  // It takes them as it is loaded; nobody else does.
  process.getBuiltinModule('node:test');
  Object.assign(hooks, { AsyncResource, createHook, executionAsyncId });
}
