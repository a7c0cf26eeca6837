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
  /** One call in so many fails, and one response in so many is cut; 0 for none. */
  failOnce = 0;
  cutOnce = 0;
  /** The first parameters of the calls whose responses it has sent whole. */
  readonly #sent = new Set<unknown>();

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
  protected readonly asJson?: (name: string, value: unknown) => unknown;

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
        this.#respond(socket, body).catch((error: Error) => world().fail(error));
      });
    });
  }

  hasSent(parameter: string): boolean {
    return this.#sent.has(parameter);
  }

  /** A cut is near the end half of the time: then a long response is a stream. */
  async #respond(socket: Socket, body: string): Promise<void> {
    const { random } = world();
    const sent = JSON.parse(body) as Request | Request[]; // sent by our server
    const calls = [sent].flat();
    const replies = (await Promise.all(calls.map((call) => this.#result(call)))).join();
    const response = responseOf(200, JSON_TYPE, Array.isArray(sent) ? `[${replies}]` : replies);
    const isCut = this.cutOnce > 0 && random.once(this.cutOnce);
    const { length } = response;
    const end = isCut ? length - random.between(1, random.pick([length - 1, length / 10])) : length;
    socket.write(response.slice(0, end));
    if (isCut) socket.destroySoon();
    else for (const { params } of calls) this.#sent.add(params?.[0]);
  }

  async #result({ id, method, params = [] }: Request): Promise<string> {
    const { random } = world();
    try {
      if (this.failOnce > 0 && random.once(this.failOnce))
        throw new RpcError('overloaded', OVERLOADED);
      const run = this.methods[method];
      if (run === undefined) throw new RpcError(`the method ${method} does not exist`, NO_METHOD);
      const result: unknown = await Reflect.apply(run, this, params);
      return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${JSON.stringify(result, this.asJson)}}`;
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      const { code, message } = error;
      return JSON.stringify({ jsonrpc: '2.0', id, error: { code, message } });
    }
  }
}
