/** What the tabs of the playground share: the choice of a model, files of the viewer, the cost. */
import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { useEffect, useState } from 'preact/hooks';
import { usdText } from '../format.ts';
import { useModels } from '../lookups.ts';
import { Select } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { CodeTabs, type Sample } from '../parts/code.tsx';
import { useCall } from '../resource.ts';
import type { Cost, Model, Receipt } from '../shapes.ts';

export interface ModelChoice {
  readonly models: readonly Model[];
  readonly model: Model | undefined;
  readonly choose: (id: string) => void;
}

/** Models of a type on offer; the one of the address is chosen, else the default. */
export function useModelChoice(type: string): ModelChoice {
  const { query, path, route } = useLocation();
  const models = useModels().filter((model) => model.type === type && !model.model_spec.offline);
  const asked = query['model'];
  const usual =
    models.find(({ model_spec: { traits } }) => traits.includes('default')) ?? models[0];
  return {
    models,
    model: models.find(({ id }) => id === asked) ?? usual,
    choose: (id) => route(`${path}?model=${encodeURIComponent(id)}`, true),
  };
}

export function ModelSelect({ choice }: { choice: ModelChoice }) {
  const { models, model, choose } = choice;
  const options = models.map(({ id, model_spec: { name } }): readonly [string, string] => [
    id,
    name === id ? id : `${name} (${id})`,
  ]);
  return (
    <Select
      label="Model"
      value={model?.id ?? ''}
      options={options.length === 0 ? [['', 'none on offer']] : options}
      onInput={choose}
    />
  );
}

/** What a request cost, exactly. */
export function costText(cost: Partial<Cost> | undefined): string {
  return cost === undefined ? '' : usdText((cost.usd ?? 0) + (cost.diem ?? 0));
}

/** `data:…` of a file. */
export function dataUrlOf(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    // A text, as `readAsDataURL` gives it.
    reader.addEventListener('load', () => resolve(reader.result as string));
    reader.addEventListener('error', () => reject(new Error('The file cannot be read')));
    reader.readAsDataURL(file);
  });
}

/** An address of a blob for as long as the component shows it. */
export function useObjectUrl(blob: Blob | undefined): string | undefined {
  const [url, setUrl] = useState<string>();
  useEffect(() => {
    if (blob === undefined) return setUrl(undefined);
    const made = URL.createObjectURL(blob);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  return url;
}

/** The request that was made, for other programs. */
export function CodeWindow({ samples, close }: { samples: readonly Sample[]; close: () => void }) {
  return (
    <Overlay title="The same request" close={close}>
      <CodeTabs samples={samples} />
      <p class="hint">
        Set <code>API_KEY</code> in the environment; a key is made on the page Keys.
      </p>
    </Overlay>
  );
}

/** Shows the request that would be made. */
export function CodeButton({ samples }: { samples: () => readonly Sample[] }) {
  const isOpen = useSignal(false);
  return (
    <>
      <button type="button" onClick={() => (isOpen.value = true)}>
        Code
      </button>
      {isOpen.value && <CodeWindow samples={samples()} close={() => (isOpen.value = false)} />}
    </>
  );
}

/** What a request cost, read from its receipt, where the answer is a file and cannot say it. */
export function ReceiptCost({ requestId }: { requestId: string }) {
  const { data } = useCall<Receipt>(requestId === '' ? undefined : `/usage/${requestId}`);
  if (data === undefined) return null;
  return <a href={`/console/activity?open=${requestId}`}>{costText(data.cost)}</a>;
}
