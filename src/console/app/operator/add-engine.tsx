/**
 * The drawer "Add engine": choose a provider, a found server or a URL, test it, choose models and the
 * markup, see the change of the configuration file, save it, and send a first chat.
 */
import { useState } from 'preact/hooks';
import { ApiError, call } from '../api.ts';
import { countText, durationText } from '../format.ts';
import { ErrorMessage, Select, useAction } from '../parts/form.tsx';
import { Loaded, Notice } from '../parts/loaded.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { costText } from '../playground/parts.tsx';
import { useCall } from '../resource.ts';
import type { Cost, EngineChoices, TestedEngine } from '../shapes.ts';
import { type Engine, EngineForm } from './engine-form.tsx';
import { type Offered, Sale } from './engine-sale.tsx';

export function AddEngine({ close, done }: { close: () => void; done: () => void }) {
  const choices = useCall<EngineChoices>('/admin/engine-setup');
  return (
    <Overlay kind="drawer" title="Add engine" close={close}>
      <Loaded from={choices}>{(data) => <Steps choices={data} close={close} done={done} />}</Loaded>
    </Overlay>
  );
}

interface StepsProps {
  readonly choices: EngineChoices;
  readonly close: () => void;
  readonly done: () => void;
}

function Steps({ choices, close, done }: StepsProps) {
  const [engine, setEngine] = useState<Engine>();
  const [tested, setTested] = useState<TestedEngine>();
  const [sold, setSold] = useState<readonly Offered[]>();
  if (sold !== undefined) return <FirstCall sold={sold} close={close} />;
  const change = (): void => {
    setEngine(undefined);
    setTested(undefined);
  };
  return (
    <>
      {choices.readOnly !== null && (
        <Notice tone="warn">
          <p>{choices.readOnly}.</p>
        </Notice>
      )}
      <EngineForm
        choices={choices}
        changed={change}
        tested={(given, result) => {
          setTested(result);
          const url = given.url === undefined ? {} : { url: given.url + result.path };
          const protocol = given.provider === undefined ? { protocol: result.protocol } : {};
          setEngine({ ...given, ...url, ...protocol });
        }}
      />
      {tested !== undefined && <TestResult tested={tested} />}
      {engine !== undefined && tested?.ok === true && (
        <Sale
          key={tested.latencyMs}
          engine={engine}
          tested={tested}
          digest={choices.digest}
          saved={(models) => {
            done();
            setSold(models);
          }}
        />
      )}
    </>
  );
}

function TestResult({ tested }: { readonly tested: TestedEngine }) {
  const { ok, problem, note, latencyMs, protocol, models, prices } = tested;
  if (!ok) {
    return (
      <Notice tone="bad">
        <p class="text">The test failed: {problem}.</p>
      </Notice>
    );
  }
  const priced = models.filter(({ isSellable }) => isSellable).length;
  return (
    <Notice tone={note === null ? 'good' : 'warn'}>
      <p>
        The engine responds in {durationText(latencyMs)} by the protocol <code>{protocol}</code> and
        lists {countText(models.length)} models, {countText(priced)} with a published price.
      </p>
      {note !== null && <p>{note}.</p>}
      {prices.problem !== null && <p class="text">{prices.problem}.</p>}
    </Notice>
  );
}

const PROMPT = 'Say hello in one sentence.';
const TRIES = 20;
/** Errors of one caller are limited. */
const TRY_MS = 2_000;

interface Completion {
  readonly choices: readonly { readonly message: { readonly content: string | null } }[];
  readonly cost?: Partial<Cost>;
}

/** The engine is in the file. Sends a paid chat to the first text model, as a caller would. */
function FirstCall({
  sold,
  close,
}: {
  readonly sold: readonly Offered[];
  readonly close: () => void;
}) {
  const texts = sold.filter(({ facts: { type = 'text' } }) => type === 'text');
  const [model, setModel] = useState(texts[0]?.id ?? '');
  const [completion, setCompletion] = useState<Completion>();
  const action = useAction();
  const send = (): void => {
    setCompletion(undefined);
    void action.run(async () => setCompletion(await firstChat(model)));
  };
  return (
    <>
      <Notice tone="good">
        <p>The configuration is saved. The servers apply it within seconds.</p>
      </Notice>
      {texts.length > 0 && (
        <>
          <Select
            label="Model"
            value={model}
            options={texts.map(({ id }) => [id, id] as const)}
            onInput={setModel}
          />
          <p class="text">
            The test call sends “{PROMPT}” as a request of your account, which pays for it.
          </p>
          {completion !== undefined && (
            <Notice tone="good">
              <p class="text">{completion.choices[0]?.message.content}</p>
              <p class="soft">Cost: {costText(completion.cost)}</p>
            </Notice>
          )}
          <ErrorMessage error={action.error} />
        </>
      )}
      <p class="row end">
        <button type="button" onClick={close}>
          Done
        </button>
        {texts.length > 0 && (
          <button type="button" class="primary" disabled={action.isRunning} onClick={send}>
            {action.isRunning ? 'Calling…' : 'Send a test call'}
          </button>
        )}
      </p>
    </>
  );
}

/** Waits until the server has applied the file. */
async function firstChat(model: string): Promise<Completion> {
  const body = { model, max_tokens: 200, messages: [{ role: 'user', content: PROMPT }] };
  for (let tries = 1; ; tries += 1) {
    try {
      return await call<Completion>('/chat/completions', { method: 'POST', body });
    } catch (error) {
      // Only a model that is not there yet is worth another try.
      if (!(error instanceof ApiError) || error.status !== 404 || tries >= TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, TRY_MS));
    }
  }
}
