/**
 * Determines the running test of Node's test runner by async context: the parent of `test()`, and
 * the test that fails because of an uncaught error. The runner itself uses a hook for every promise
 * of the process, which takes a tenth of the time of a file.
 */
import {
  AsyncLocalStorage,
  AsyncResource,
  type AsyncResourceOptions,
  type HookCallbacks,
  createHook,
  executionAsyncId,
} from 'node:async_hooks';

/** Value of the runner outside of all tests. */
const NO_TEST = 0;

/** Must run before any module imports `node:test`. */
export function scopeTests(): void {
  const running = new AsyncLocalStorage<number>();
  let runner: HookCallbacks = {};

  /** Prototypes of tests and suites of the runner. */
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
      // A function without `this` accepts any receiver.
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
  // Only the runner uses these functions, when it is loaded.
  process.getBuiltinModule('node:test');
  Object.assign(hooks, { AsyncResource, createHook, executionAsyncId });
}
