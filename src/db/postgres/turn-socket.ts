/** The socket of a connection with pipelined statements. */
import { Socket } from 'node:net';

/** Joins all writes of one turn of the event loop; the client corks each statement alone. */
export class TurnSocket extends Socket {
  #isWriting = false;
  readonly #send = (): void => {
    this.#isWriting = false;
    this.uncork();
  };

  override cork(): void {
    if (!this.#isWriting) {
      this.#isWriting = true;
      super.cork();
      process.nextTick(this.#send);
    }
    super.cork();
  }
}
