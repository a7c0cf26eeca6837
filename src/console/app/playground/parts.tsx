/** Shared by the tabs of the playground: model selection, files, code samples and costs. */
import { useLocation } from 'preact-iso';
import { useEffect, useState } from 'preact/hooks';
import { usdText } from '../format.ts';
import { useModels } from '../lookups.ts';
import { modelChoices } from '../parts/filters.tsx';
import { Select } from '../parts/form.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { CodeTabs } from '../parts/code.tsx';
import type { Sample } from '../code-samples.ts';
import type { Cost, Model } from '../shapes.ts';

export interface ModelChoice {
  readonly models: readonly Model[];
  readonly model: Model | undefined;
  readonly choose: (id: string) => void;
}

/** The available models of a type. Selects the model in the address, else the default. */
export function useModelChoice(type: string): ModelChoice {
  const { query, path, route } = useLocation();
  const models = useModels().filter((model) => model.type === type && !model.model_spec.offline);
  return {
    models,
    model:
      models.find(({ id }) => id === query['model']) ??
      models.find(({ model_spec: { traits } }) => traits.includes('default')) ??
      models[0],
    choose: (id) => route(`${path}?model=${encodeURIComponent(id)}`, true),
  };
}

export function hasCapability(model: Model | undefined, name: string): boolean {
  const values: Readonly<Record<string, unknown>> = model?.model_spec.capabilities ?? {};
  return values[name] === true;
}

export function ModelSelect({ choice }: { choice: ModelChoice }) {
  const { models, model, choose } = choice;
  const [, ...options] = modelChoices(models);
  return (
    <Select
      label="Model"
      value={model?.id ?? ''}
      options={options.length === 0 ? [['', 'none available']] : options}
      onInput={choose}
    />
  );
}

/** The lines of a text that are not empty. */
export function linesOf(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}

export function costText(cost: Partial<Cost> | undefined): string {
  return cost === undefined ? '' : usdText((cost.usd ?? 0) + (cost.diem ?? 0));
}

export function dataUrlOf(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener('load', () => resolve(reader.result as string)); // by `readAsDataURL`
    reader.addEventListener('error', () => reject(new Error('The file cannot be read')));
    reader.readAsDataURL(file);
  });
}

/** An object URL that is revoked with the component. */
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

export function CodeWindow({ samples, close }: { samples: readonly Sample[]; close: () => void }) {
  return (
    <Overlay title="This request as code" close={close}>
      <CodeTabs samples={samples} />
      <p class="hint">
        Set the environment variable <code>API_KEY</code> to a key from the page Keys.
      </p>
    </Overlay>
  );
}

export function CodeButton({ samples }: { samples: () => readonly Sample[] }) {
  return (
    <DialogButton label="Code">
      {(close) => <CodeWindow samples={samples()} close={close} />}
    </DialogButton>
  );
}
