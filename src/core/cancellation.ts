/**
 * Whether anybody still asks for what a request does. An `AbortController` with its signal costs as
 * much as a tenth of a chat, so that one is made only for those who take nothing else (`fetch`, a
 * timer); engines, sales and streams listen here.
 */

/** What can be listened to: a `Cancellation`, or a signal. */
export interface Cancelling {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

export class Cancellation implements Cancelling {
  aborted = false;
  /** Most have one listener, so it needs no list. */
  #listener: (() => void) | undefined;
  #further: (() => void)[] | undefined;
  #controller: AbortController | undefined;

  /** The same as a signal. */
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

  /** Tells everybody, once. */
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
  // It would keep whoever listens to it.
  override addEventListener(): void {}
  override removeEventListener(): void {}
  override abort(): void {}
}

/** Of work that goes on whoever leaves. */
export const NEVER_CANCELLED: Cancellation = new NeverCancelled();
