/** The socket of a connection whose statements are sent without waiting for replies. */
import { Socket } from 'node:net';

/** Sends what is written in one turn of the event loop together: the client corks it for each statement. */
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
