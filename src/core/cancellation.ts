/**
 * Reports whether a request's result is still wanted. An `AbortController` with its signal costs a
 * tenth of a chat request, so one is created only for APIs that require a signal (`fetch`, timers).
 */

export interface Cancelling {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

export class Cancellation implements Cancelling {
  aborted = false;
  /** Most cancellations have one listener, which needs no array. */
  #listener: (() => void) | undefined;
  #further: (() => void)[] | undefined;
  #controller: AbortController | undefined;

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.aborted) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  addEventListener(_type: 'abort', listener: () => void): void {
    if (this.#listener === undefined) this.#listener = listener;
    else (this.#further ??= []).push(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    if (this.#listener === listener) this.#listener = undefined;
    else this.#further = this.#further?.filter((one) => one !== listener);
  }

  abort(): void {
    if (this.aborted) return;
    this.aborted = true;
    const listener = this.#listener;
    const further = this.#further;
    this.#listener = undefined;
    this.#further = undefined;
    listener?.();
    for (const one of further ?? []) one();
    this.#controller?.abort();
  }
}

class NeverCancelled extends Cancellation {
  // Ignored: a signal that never aborts would keep its listeners alive.
  override addEventListener(): void {}
  override removeEventListener(): void {}
  override abort(): void {}
}

/** For work that continues even if the client disconnects. */
export const NEVER_CANCELLED: Cancellation = new NeverCancelled();
