// Toy training of the vectors of a batch: a copy of bsc_core/lab/toy_training.py, compared with it by a browser test.

const LEARNING_RATE = 0.03, RATE_OF_TEXTS = 0.01, AXES_EVERY = 10, AXES_ROUNDS = 100, [BETA1, BETA2, EPSILON] = [0.9, 0.999, 1e-8];
const [LOWEST_LOG_TEMPERATURE, HIGHEST_LOG_TEMPERATURE] = [Math.log(0.01), Math.log(100)];
const CONSTANT = 1e-12;
// MNRL is the batch softmax of the queries alone, over the mean of the positive pairs.
const MNRL = {
  symmetric: false, normalization: "l2", labeled_negatives: true, duplicates: "keep", reduction: "mean", average: "positives",
  threshold: 0.5, mask: "none", mask_margin: 0, hardness: "none", hardness_strength: 0, decoupled: false, debiased_prior: 0,
};
const zeros = (rows) => rows.map((row) => row.map(() => 0));

const softplus = (value) => Math.max(0, value) + Math.log1p(Math.exp(-Math.abs(value)));
const sigmoid = (value) => 1 / (1 + Math.exp(-value));
// A complex vector, with the real parts first, times i; an odd width is padded with 0.
function rotated(vector) {
  const half = Math.ceil(vector.length / 2), [real, imaginary] = [vector.slice(0, half), vector.slice(half)];
  return [...Array.from({ length: half }, (_, d) => -(imaginary[d] ?? 0)), ...real].slice(0, vector.length);
}

// log(1 + sum of exp(s_j - s_i) over all pairs of rows with y_i > y_j), and its gradient by the scores s.
function orderLoss(scores, labels) {
  const cells = labels.flatMap((high, i) => labels.flatMap((low, j) => (high > low ? [{ i, j, term: scores[j] - scores[i] }] : [])));
  const highest = Math.max(0, ...cells.map(({ term }) => term));
  const sum = Math.exp(-highest) + total(cells.map(({ term }) => Math.exp(term - highest))), slopes = scores.map(() => 0);
  for (const { i, j, term } of cells) {
    const share = Math.exp(term - highest) / sum;
    slopes[i] -= share;
    slopes[j] += share;
  }
  return { value: highest + Math.log(sum), slopes };
}

// Value of a loss on a batch, and its gradients: by the similarities, by log tau, by the bias, and by the product of each
// query with i times its document (AnglE).
function pairLoss(batch, loss, temperature, bias) {
  if (loss.name === "bsc" || loss.name === "mnrl") {
    const result = explainBatch(batch, { ...(loss.name === "bsc" ? loss : MNRL), temperature });
    const along = (cells) => (cells ? total(cells.similarity.map((row, i) => dot(row, cells.gradient[i]))) : 0);
    const { queries, documents } = result; // a similarity of two texts of a side is in two cells
    const byLogTemperature = -along(result) - (along(queries) + along(documents)) / 2;
    return { value: result.total, gradient: result.gradient, sides: [queries, documents], byLogTemperature };
  }
  const { similarity } = prepare(batch, MNRL), gradient = zeros(similarity), { labels } = batch;
  const cosines = labels.map((_, i) => similarity[i][i]), pairs = labels.length;
  const positive = labels.map((label) => label > 0.5), { margin, reduction } = loss;
  const share = reduction === "sum" ? 1 : 1 / pairs;
  let value = 0, byLogTemperature = 0, byBias = 0, byRotated = null;
  const add = (i, j, term, slope) => {
    value += term;
    gradient[i][j] += slope;
  };
  switch (loss.name) {
    case "mse":
      cosines.forEach((cosine, i) => add(i, i, (cosine - labels[i]) ** 2 / pairs, (2 * (cosine - labels[i])) / pairs));
      break;
    case "pearson": {
      const centered = (values) => values.map((one) => one - total(values) / pairs);
      const isConstant = (values, rest) => dot(rest, rest) <= CONSTANT * dot(values, values);
      const [first, second] = [centered(cosines), centered(labels)];
      if (isConstant(cosines, first) || isConstant(labels, second)) break;
      const [a, b] = [first, second].map((values) => Math.sqrt(dot(values, values)));
      value = -dot(first, second) / (a * b);
      first.forEach((one, i) => { gradient[i][i] = -second[i] / (a * b) - (value * one) / (a * a); });
      break;
    }
    case "triplet": // the negative is the most similar other document
      similarity.forEach((row, i) => {
        const others = row.map((cosine, j) => (batch.document_ids[i] === batch.document_ids[j] ? -Infinity : cosine));
        const hardest = others.indexOf(Math.max(...others)), excess = row[hardest] - row[i] + margin;
        if (!(excess > 0)) return;
        add(i, i, share * excess, -share);
        add(i, hardest, 0, share);
      });
      break;
    case "contrastive":
      cosines.forEach((cosine, i) => {
        const distance = 1 - cosine, apart = Math.max(0, margin - distance);
        if (positive[i]) add(i, i, 0.5 * share * distance ** 2, -share * distance);
        else add(i, i, 0.5 * share * apart ** 2, share * apart);
      });
      break;
    case "online_contrastive": {
      const distances = cosines.map((cosine) => 1 - cosine);
      const [near, far] = [true, false].map((kind) => distances.filter((_, i) => positive[i] === kind));
      const mean = (values) => (values.length ? total(values) / values.length : 0);
      const limitFar = near.length > 1 ? Math.max(...near) : mean(far), limitNear = far.length > 1 ? Math.min(...far) : mean(near);
      const hard = distances.map((distance, i) => (positive[i] ? distance > limitNear : distance < limitFar));
      const scale = reduction === "mean" ? 1 / Math.max(1, hard.filter(Boolean).length) : 1;
      distances.forEach((distance, i) => {
        if (!hard[i]) return;
        const apart = Math.max(0, margin - distance);
        if (positive[i]) add(i, i, scale * distance ** 2, -2 * scale * distance);
        else add(i, i, scale * apart ** 2, 2 * scale * apart);
      });
      break;
    }
    case "sigmoid":
      similarity.forEach((row, i) => row.forEach((cosine, j) => {
        const sign = i === j && positive[i] ? 1 : -1, logit = cosine / temperature + bias;
        const slope = (-sign * sigmoid(-sign * logit)) / pairs;
        add(i, j, softplus(-sign * logit) / pairs, slope / temperature);
        byLogTemperature -= (slope * cosine) / temperature;
        byBias += slope;
      }));
      break;
    case "cosent": case "angle": {
      const [left, right] = [batch.queries, batch.documents].map((vectors) => normalize(vectors, "l2"));
      const sums = cosines.map((cosine, i) => cosine + (loss.name === "angle" ? dot(left[i], rotated(right[i])) : 0));
      const signs = sums.map((sum) => (loss.name === "angle" ? Math.sign(sum) : 1));
      const result = orderLoss(sums.map((sum, i) => (signs[i] * sum) / temperature), labels);
      const slopes = result.slopes.map((slope, i) => (slope * signs[i]) / temperature);
      slopes.forEach((slope, i) => add(i, i, 0, slope));
      if (loss.name === "angle") byRotated = slopes;
      byLogTemperature = -dot(slopes, sums);
      value = result.value;
      break;
    }
    default: throw new Error(`${loss.name} has no training in the browser`);
  }
  return { value, gradient, byLogTemperature, byBias, byRotated };
}

// The gradient by the vectors of one side, from the one by its normalized vectors.
function throughNormalization(vectors, gradient, normalization) {
  if (normalization === "none") return gradient;
  if (normalization === "l2") return vectors.map((row, i) => throughNorm(row, gradient[i], 0));
  const smallest = SMALLEST_RANGE * Math.max(...vectors.flat().map(Math.abs));
  const columns = transpose(vectors), slopes = transpose(gradient);
  if (normalization === "l2_columns") return transpose(columns.map((column, d) => throughNorm(column, slopes[d], smallest)));
  return transpose(columns.map((column, d) => {
    const [lowest, highest] = [Math.min(...column), Math.max(...column)], scale = inverse(highest - lowest, smallest);
    const shift = normalization === "minmax_columns" ? lowest : 0;
    const byScale = dot(slopes[d], column.map((value) => value - shift));
    const byHighest = -(scale ** 2) * byScale, byLowest = -byHighest - (normalization === "minmax_columns" ? scale * total(slopes[d]) : 0);
    const ties = (extreme) => column.filter((value) => value === extreme).length;
    return column.map((value, i) => slopes[d][i] * scale
      + (value === highest ? byHighest / ties(highest) : 0) + (value === lowest ? byLowest / ties(lowest) : 0));
  }));
}
function throughNorm(values, slopes, smallest) {
  const size = Math.sqrt(dot(values, values)), scale = inverse(size, smallest), along = dot(values, slopes) * scale ** 2;
  return values.map((value, d) => scale * (slopes[d] - value * along));
}

// The gradient by the vectors of one side, from the one by the similarities and the vectors of the other side.
function bySide(gradient, others) {
  return gradient.map((row) => {
    const sum = new Array(others[0].length).fill(0);
    row.forEach((slope, j) => {
      if (slope) for (let d = 0; d < sum.length; d++) sum[d] += slope * others[j][d];
    });
    return sum;
  });
}

// Adam for a matrix of parameters, changed in place.
function adam(parameters, rate) {
  const [first, second] = [zeros(parameters), zeros(parameters)];
  let count = 0;
  return (gradient) => {
    count++;
    const [corrected1, corrected2] = [1 - BETA1 ** count, 1 - BETA2 ** count];
    parameters.forEach((row, i) => row.forEach((_, d) => {
      const slope = gradient[i][d];
      first[i][d] = BETA1 * first[i][d] + (1 - BETA1) * slope;
      second[i][d] = BETA2 * second[i][d] + (1 - BETA2) * slope ** 2;
      row[d] -= ((rate / corrected1) * first[i][d]) / (Math.sqrt(second[i][d] / corrected2) + EPSILON);
    }));
  };
}

// The two main axes of rows, by orthogonal iteration.
function mainAxes(rows) {
  const means = rows[0].map((_, d) => total(rows.map((row) => row[d])) / rows.length);
  const centered = rows.map((row) => row.map((value, d) => value - means[d]));
  let axes = [means.map((_, d) => Math.sin(d + 1)), means.map((_, d) => Math.cos(2 * d + 1))];
  for (let round = 0; round < AXES_ROUNDS; round++) {
    const [first, second] = bySide(axes.map((axis) => centered.map((row) => dot(row, axis))), centered);
    const [main] = normalize([first], "l2"), along = dot(second, main);
    axes = [main, ...normalize([second.map((value, d) => value - along * main[d])], "l2")];
  }
  return axes;
}

// The states of a training, from before the first step to after the last. loss: name and settings of a loss.
function trainPoints(batch, loss, steps = 100) {
  const pairs = batch.queries.length, normalization = loss.name === "bsc" ? loss.normalization : "l2";
  const vectors = [...batch.queries, ...batch.documents].map((row) => [...row]);
  const logTemperature = [[Math.log(loss.temperature ?? 1)]], bias = [[loss.bias ?? 0]];
  const dimensions = vectors[0].length;
  const stepVectors = adam(vectors, dimensions > 2 ? RATE_OF_TEXTS / Math.sqrt(dimensions / 2) : LEARNING_RATE);
  const [stepTemperature, stepBias] = [adam(logTemperature, LEARNING_RATE), adam(bias, LEARNING_RATE)];
  const trace = { points: [], moves: [], similarity: [], loss: [], temperature: loss.temperature ? [] : null, correct: [], gap: [] };
  for (let step = 0; step <= steps; step++) {
    logTemperature[0][0] = clamp(logTemperature[0][0], LOWEST_LOG_TEMPERATURE, HIGHEST_LOG_TEMPERATURE);
    const temperature = loss.learn_temperature ? Math.exp(logTemperature[0][0]) : loss.temperature;
    const now = { ...batch, queries: vectors.slice(0, pairs), documents: vectors.slice(pairs) };
    const { value, gradient, sides = [], byLogTemperature, byBias, byRotated } = pairLoss(now, loss, temperature, bias[0][0]);
    const units = [now.queries, now.documents].map((side) => normalize(side, normalization)), [left, right] = units;
    const byUnits = [bySide(gradient, right), bySide(transpose(gradient), left)];
    const add = (side, rows) => rows.forEach((row, i) => row.forEach((slope, d) => { byUnits[side][i][d] += slope; }));
    units.forEach((vectors, side) => { if (sides[side]) add(side, bySide(sides[side].gradient, vectors)); });
    if (byRotated) {
      add(0, right.map((row, i) => rotated(row).map((value) => byRotated[i] * value)));
      add(1, left.map((row, i) => rotated(row).map((value) => -byRotated[i] * value)));
    }
    const slopes = [
      ...throughNormalization(now.queries, byUnits[0], normalization),
      ...throughNormalization(now.documents, byUnits[1], normalization)];
    const { similarity, positive } = prepare(now, MNRL);
    trace.points.push(normalize(vectors, "l2"));
    trace.moves.push(slopes.map((row) => row.map((slope) => -slope)));
    trace.similarity.push(similarity);
    trace.loss.push(value);
    trace.temperature?.push(temperature);
    const anchors = similarity.map((row, i) => ({ row, i })).filter(({ i }) => positive[i]);
    trace.correct.push(total(anchors.map(({ row, i }) => Number(firstLargest(row) === i))) / Math.max(1, anchors.length));
    trace.gap.push(Math.min(...anchors.map(({ row, i }) =>
      row[i] - Math.max(...row.filter((_, j) => batch.document_ids[j] !== batch.document_ids[i])))));
    stepVectors(slopes);
    if (loss.learn_temperature) stepTemperature([[byLogTemperature]]);
    if (loss.learn_bias) stepBias([[byBias]]);
  }
  if (dimensions > 2) {
    const axes = mainAxes(trace.points.filter((_, step) => step % AXES_EVERY === 0).flat());
    for (const name of ["points", "moves"]) trace[name] = trace[name].map((rows) => rows.map((row) => axes.map((axis) => dot(row, axis))));
  }
  return trace;
}
