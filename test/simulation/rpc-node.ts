/** A node with JSON-RPC, which can lag behind, lie or fail. */
import type { Socket } from 'node:net';
import { JSON_TYPE, responseOf, serveHttp } from './http.ts';
import { Machine, world } from './world.ts';

const OVERLOADED = -32_603;
const NO_METHOD = -32_601;

/** An error that nodes return, by default that of a call that was run. */
export class RpcError extends Error {
  readonly code: number;

  constructor(message: string, code = 3) {
    super(message);
    this.code = code;
  }
}

interface Request {
  readonly id: number | string;
  readonly method: string;
  readonly params?: readonly unknown[];
}

export abstract class RpcNode<Block, Chain extends { readonly blocks: readonly Block[] }> {
  protected readonly chain: Chain;
  readonly machine: Machine;
  readonly #port: number;
  readonly url: string;
  /** The blocks of a node that lags behind, possibly of a branch that was dropped. */
  frozen: Block[] | undefined;
  /** Reports waiting transactions as executed, executed ones as unknown, and a block of the future. */
  doesLie = false;
  /** One call in so many fails; 0 for none. */
  failOnce = 0;

  constructor(chain: Chain, port: number) {
    this.chain = chain;
    this.#port = port;
    this.url = `http://127.0.0.1:${port}/`;
    this.machine = new Machine(`node ${port}`);
  }

  /** The calls of a payment, by method. */
  protected abstract readonly methods: Readonly<
    Record<string, (...parameters: never[]) => unknown>
  >;

  /** How JSON writes a value of a result. */
  protected asJson(_name: string, value: unknown): unknown {
    return value;
  }

  /** The blocks that it knows. */
  get blocks(): readonly Block[] {
    return this.frozen ?? this.chain.blocks;
  }

  protected get head(): Block {
    return this.blocks.at(-1)!;
  }

  start(): void {
    this.machine.run(() => {
      serveHttp(this.#port, ({ body }, socket) => {
        this.#respond(body).then(
          (reply) => this.#send(socket, responseOf(200, JSON_TYPE, reply)),
          (error: Error) => world().fail(error),
        );
      });
    });
  }

  /** A failing node also cuts responses. */
  #send(socket: Socket, response: string): void {
    const { random } = world();
    const isCut = this.failOnce > 0 && random.once(2 * this.failOnce);
    socket.write(isCut ? response.slice(0, random.between(1, response.length - 1)) : response);
    if (isCut) socket.destroySoon();
  }

  async #respond(body: string): Promise<string> {
    const asked = JSON.parse(body) as Request | readonly Request[]; // sent by our server
    if (!('length' in asked)) return await this.#result(asked);
    return `[${(await Promise.all(asked.map((one) => this.#result(one)))).join()}]`;
  }

  async #result({ id, method, params = [] }: Request): Promise<string> {
    const { random } = world();
    try {
      if (this.failOnce > 0 && random.once(this.failOnce))
        throw new RpcError('overloaded', OVERLOADED);
      const run = this.methods[method];
      if (run === undefined) throw new RpcError(`the method ${method} does not exist`, NO_METHOD);
      const result: unknown = await Reflect.apply(run, this, params);
      const asJson = (name: string, value: unknown): unknown => this.asJson(name, value);
      return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${JSON.stringify(result, asJson)}}`;
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      const { code, message } = error;
      return JSON.stringify({ jsonrpc: '2.0', id, error: { code, message } });
    }
  }
}
