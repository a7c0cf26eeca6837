/**
 * The pieces of a body that is being received. Small pieces are copied into shared buffers, because
 * each takes up to 500 bytes of memory beside its own: a peer that sends single bytes would need far
 * more memory than the limit of its body.
 */
import { joinBytes } from './event-loop.ts';

/** A piece of at least this size is kept as it is. */
const KEPT_BYTES = 1_024;
const SHARED_BYTES = 16 * KEPT_BYTES;

export class BodyPieces {
  readonly #pieces: Buffer[] = [];
  #shared = Buffer.alloc(0);
  /** The part of the shared buffer that is not among the pieces yet. */
  #start = 0;
  #end = 0;
  sizeBytes = 0;

  /** `first`: a piece that was kept until a second one arrived. */
  constructor(first?: Buffer) {
    if (first !== undefined) this.add(first);
  }

  add(piece: Buffer): void {
    this.sizeBytes += piece.length;
    if (piece.length >= KEPT_BYTES) {
      this.#closeShared();
      this.#pieces.push(piece);
      return;
    }
    if (this.#end + piece.length > this.#shared.length) {
      this.#closeShared();
      this.#shared = Buffer.allocUnsafeSlow(SHARED_BYTES);
      this.#start = 0;
      this.#end = 0;
    }
    this.#end += piece.copy(this.#shared, this.#end);
  }

  /** As `joinBytes`. */
  joined(): Buffer | Promise<Buffer> {
    this.#closeShared();
    return joinBytes(this.#pieces, this.sizeBytes);
  }

  joinedAtOnce(): Buffer {
    this.#closeShared();
    return Buffer.concat(this.#pieces, this.sizeBytes);
  }

  #closeShared(): void {
    if (this.#end > this.#start) this.#pieces.push(this.#shared.subarray(this.#start, this.#end));
    this.#start = this.#end;
  }
}
