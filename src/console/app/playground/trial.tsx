/** A tab that sends one JSON request: its form, the result with its cost, and the latest requests. */
import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { ComponentChildren } from 'preact';
import { call, request } from '../api.ts';
import { jsonSamples } from '../code-samples.ts';
import { durationText } from '../format.ts';
import { Form, useAction } from '../parts/form.tsx';
import { Empty, Failure } from '../parts/loaded.tsx';
import { isOperator } from '../session.ts';
import type { Cost, Receipt } from '../shapes.ts';
import { type RequestBody, textIn } from '../request-history.ts';
import { HistoryList, useHistory } from './history.tsx';
import { CodeButton, type ModelChoice, ModelSelect, costText } from './parts.tsx';

interface TrialProps<Data> {
  /** Name of the tab in the browser's storage. */
  readonly kind: string;
  /** Path of the route, below the base path. */
  readonly path: string;
  readonly choice: ModelChoice;
  /** The request without the model. */
  readonly body: RequestBody;
  /** Text for the list of the latest requests. */
  readonly summary: string;
  readonly isReady: boolean;
  readonly verb: string;
  readonly isRunningText: string;
  /** File name of a binary response in code samples. */
  readonly output?: string;
  readonly emptyTitle: string;
  readonly emptyText: string;
  readonly fields: ComponentChildren;
  readonly read: (response: Response) => Promise<Data>;
  /** Fills the form with an earlier request. */
  readonly restore: (body: RequestBody) => void;
  readonly notes?: (data: Data) => readonly string[];
  readonly show: (data: Data) => ComponentChildren;
}

export interface Outcome<Data> {
  readonly data: Data;
  readonly cost: Cost | undefined;
  readonly requestId: string;
  readonly tookMs: number;
}

interface Sent<Data> {
  readonly path: string;
  /** JSON or a form. */
  readonly body: RequestBody | FormData;
  readonly summary: string;
  readonly read: (response: Response) => Promise<Data>;
}

/** Sends requests one at a time, and stores them in the history of the tab. */
export function useTrial<Data>(kind: string) {
  const outcome = useSignal<Outcome<Data> | undefined>(undefined);
  const action = useAction();
  const history = useHistory(kind);
  const send = ({ path, body, summary, read }: Sent<Data>): void => {
    void action.run(async () => {
      outcome.value = undefined;
      const startedMs = performance.now();
      const response = await request(path, { method: 'POST', body });
      const data = await read(response);
      const tookMs = performance.now() - startedMs;
      const requestId = response.headers.get('x-request-id') ?? '';
      const cost = await costOf(requestId);
      outcome.value = { data, cost, requestId, tookMs };
      history.add({ summary, body: body instanceof FormData ? undefined : body, requestId, cost });
    });
  };
  return { outcome, action, history, send };
}

interface BillProps {
  readonly of: Outcome<unknown>;
  readonly notes?: readonly string[];
  readonly children?: ComponentChildren;
}

/** Cost with a link to the receipt, and duration. */
export function Bill({ of: { requestId, cost, tookMs }, notes = [], children }: BillProps) {
  return (
    <p class="bill num row">
      <a href={`/console/activity?open=${requestId}`}>
        {cost === undefined ? 'Receipt' : costText(cost)}
      </a>
      <span>{[...notes, durationText(tookMs)].join(' · ')}</span>
      {children !== undefined && <span class="row end">{children}</span>}
    </p>
  );
}

export function Trial<Data>(props: TrialProps<Data>) {
  const { kind, path, choice, summary, isReady, output, read, restore, notes, show } = props;
  const { route } = useLocation();
  const { outcome, action, history, send } = useTrial<Data>(kind);
  const body = { model: choice.model?.id ?? 'default', ...props.body };
  const run = (): void => send({ path, body, summary, read });
  const fill = (earlier: RequestBody): void => {
    const id = encodeURIComponent(textIn(earlier, 'model'));
    route(`/console/playground/${kind}?model=${id}`, true);
    restore(earlier);
  };
  return (
    <div class="split">
      <Form submit={run}>
        <ModelSelect choice={choice} />
        {props.fields}
        {action.error !== undefined && <Failure error={action.error} retry={run} />}
        <p class="row">
          <button
            type="submit"
            class="primary"
            disabled={action.isRunning || choice.model === undefined || !isReady}
          >
            {action.isRunning ? props.isRunningText : props.verb}
          </button>
          <CodeButton samples={() => jsonSamples(path, body, 'API_KEY', output)} />
        </p>
      </Form>
      <section aria-label="Result" aria-busy={action.isRunning}>
        {outcome.value === undefined ? (
          <Empty title={choice.model === undefined ? 'No model is available' : props.emptyTitle}>
            <p>
              {choice.model === undefined
                ? 'The operator of this service offers no model of this kind.'
                : props.emptyText}
            </p>
            {choice.model === undefined && isOperator.value && (
              <p>
                <a href="/console/operator/engines?open=new">Add an engine</a>
              </p>
            )}
          </Empty>
        ) : (
          <>
            {show(outcome.value.data)}
            <Bill of={outcome.value} notes={notes?.(outcome.value.data) ?? []} />
          </>
        )}
        <HistoryList history={history} restore={fill} />
      </section>
    </div>
  );
}

/** The cost in the receipt of a request; `undefined` if the receipt cannot be read. */
async function costOf(requestId: string): Promise<Cost | undefined> {
  try {
    return (await call<Receipt>(`/usage/${requestId}`)).cost;
  } catch {
    // The result is more important; the link to the receipt remains.
    return undefined;
  }
}
